/* Preloaded library: CPUID reports a processor with fewer vector instructions (Linux on x86-64).

   HIDE_CPUID selects the mask: avx512 hides only VNNI, avx2 also all of AVX-512, sse also all of AVX. The kernel makes CPUID
   fault (arch_prctl ARCH_SET_CPUID), and a SIGSEGV handler emulates it. Threads and forked children inherit both. An exec
   resets both; the library is then loaded again in the new program if LD_PRELOAD still names it. If the kernel or the
   processor does not support this, the program exits with status 77: it never runs unmasked.
   glibc selects its own functions before the library is initialized. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define UNSUPPORTED 77
#define BIT(n) (1u << (n))

typedef int (*sigaction_function)(int, const struct sigaction *, struct sigaction *);
typedef struct { uint32_t a, b, c, d; } registers;

static enum { VNNI, AVX512, AVX } hidden; /* each also hides those before it */
static struct sigaction program_action;   /* the program's own action for SIGSEGV */
static int initialized;

static long allow_cpuid(unsigned long allowed) {
  long result = SYS_arch_prctl;
  __asm__ volatile("syscall" : "+a"(result) : "D"(ARCH_SET_CPUID), "S"(allowed) : "rcx", "r11", "memory");
  return result;
}

static int real_sigaction(int signal, const struct sigaction *action, struct sigaction *before) {
  static sigaction_function function;
  if (!function) function = (sigaction_function)dlsym(RTLD_NEXT, "sigaction");
  return function(signal, action, before);
}

static registers processor(uint32_t leaf, uint32_t subleaf) {
  registers r = {leaf, 0, subleaf, 0};
  allow_cpuid(1);
  __asm__ volatile("cpuid" : "+a"(r.a), "=b"(r.b), "+c"(r.c), "=d"(r.d));
  allow_cpuid(0);
  return r;
}

static registers masked(uint32_t leaf, uint32_t subleaf) {
  registers r = processor(leaf, subleaf);
  if (leaf == 7 && subleaf == 0) {
    r.c &= ~BIT(11);                                     /* AVX512_VNNI */
    r.d &= ~(BIT(22) | BIT(23) | BIT(24) | BIT(25));     /* AMX_BF16, AVX512_FP16, AMX_TILE, AMX_INT8 */
    if (hidden >= AVX512) {
      r.b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* F DQ IFMA PF ER CD BW VL */
      r.c &= ~(BIT(1) | BIT(6) | BIT(12) | BIT(14));     /* VBMI, VBMI2, BITALG, VPOPCNTDQ */
      r.d &= ~(BIT(2) | BIT(3) | BIT(8));                /* 4VNNIW, 4FMAPS, VP2INTERSECT */
    }
    if (hidden >= AVX) {
      r.b &= ~BIT(5);                                    /* AVX2 */
      r.c &= ~(BIT(9) | BIT(10));                        /* VAES, VPCLMULQDQ */
    }
  } else if (leaf == 7 && subleaf == 1) {
    r.a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23));       /* AVX_VNNI, AVX512_BF16, AMX_FP16, AVX_IFMA */
    r.d &= ~(BIT(4) | BIT(5) | BIT(10) | BIT(19));       /* AVX_VNNI_INT8, AVX_NE_CONVERT, AVX_VNNI_INT16, AVX10 */
  } else if (leaf == 1 && hidden >= AVX) {
    r.c &= ~(BIT(12) | BIT(28) | BIT(29));               /* FMA, AVX, F16C */
  } else if (leaf == 0x80000001 && hidden >= AVX) {
    r.c &= ~(BIT(11) | BIT(16));                         /* XOP, FMA4 */
  }
  return r;
}

/* Pass a fault that CPUID did not cause to the program's own handler. */
static void forward(int signal, siginfo_t *info, void *context) {
  struct sigaction action = program_action;
  if (action.sa_flags & SA_RESETHAND) memset(&program_action, 0, sizeof program_action);
  if (action.sa_flags & SA_SIGINFO) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    if (action.sa_handler == SIG_IGN && info->si_code <= 0) return; /* sent by a process, and ignored */
    struct sigaction die = {.sa_handler = SIG_DFL};
    real_sigaction(signal, &die, NULL);
    if (info->si_code <= 0) raise(signal); /* a fault repeats by itself, a sent signal does not */
  } else {
    action.sa_handler(signal);
  }
}

static void trap(int signal, siginfo_t *info, void *context) {
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)r[REG_RIP];
  /* The instruction is certainly readable only after a general protection fault. */
  if (info->si_code != SI_KERNEL || at[0] != 0x0f || at[1] != 0xa2) {
    forward(signal, info, context);
    return;
  }
  registers answer = masked((uint32_t)r[REG_RAX], (uint32_t)r[REG_RCX]);
  r[REG_RAX] = answer.a;
  r[REG_RBX] = answer.b;
  r[REG_RCX] = answer.c;
  r[REG_RDX] = answer.d;
  r[REG_RIP] += 2;
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *before) {
  if (signal != SIGSEGV || !initialized) return real_sigaction(signal, action, before);
  struct sigaction previous = program_action;
  if (action) program_action = *action;
  if (before) *before = previous;
  return 0;
}

void (*signal(int number, void (*handler)(int)))(int) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
  return sigaction(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

/* For tests: one CPUID instruction, as any code would execute it. */
void cpuid_as_seen(uint32_t leaf, uint32_t subleaf, uint32_t *out) {
  uint32_t a = leaf, c = subleaf;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(out[1]), "+c"(c), "=d"(out[3]));
  out[0] = a;
  out[2] = c;
}

__attribute__((constructor(101))) static void initialize(void) {
  const char *mask = getenv("HIDE_CPUID");
  if (!mask) return;
  hidden = !strcmp(mask, "sse") ? AVX : !strcmp(mask, "avx512") ? VNNI : AVX512;
  struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  real_sigaction(SIGSEGV, &action, &program_action);
  initialized = 1;
  if (allow_cpuid(0)) _exit(UNSUPPORTED);
}
