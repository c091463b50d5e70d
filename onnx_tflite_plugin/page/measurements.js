"use strict";
/* Errors and times of the operators. */

const SVG = "http://www.w3.org/2000/svg";
const MAX_RATIO = 100; // error divided by its tolerance, if the error is not finite or the tolerance is 0
const MIN_RATIO = 1e-4; // smaller ratios are drawn as equal

/**
 * Tolerances in quantization steps.
 *
 * ``areSteps``: most errors have such a tolerance. ``areOneStep``: and each of these is 1. ``areEqual``: these are equal.
 */
function describeTolerances() {
  const tolerances = page.errors.filter((item) => item.unit === "step").map((item) => item.tolerance);
  const areSteps = tolerances.length > page.errors.length / 2;
  return {
    tolerances,
    areSteps,
    areOneStep: areSteps && tolerances.every((tolerance) => tolerance === 1),
    areEqual: tolerances.every((tolerance) => tolerance === tolerances[0]),
  };
}

function errorsHint({ areSteps, areOneStep }) {
  const isFloat = (op) => op.dtype.startsWith("float") && op.tflite_dtype && op.tflite_dtype !== op.dtype;
  let hint =
    "Each dot is the error of one tensor divided by its tolerance, computed with LiteRT's values as inputs. " +
    "Tensors above the red line differ. ";
  if (areSteps && page.operators.some(isFloat)) {
    hint += "The ONNX model has floats; their errors are in quantization steps of the TFLite file. ";
  }
  if (areOneStep) {
    hint +=
      "A dot on the line is one quantization step off, which is normal: " +
      "LiteRT's kernels differ from each other by as much. ";
  }
  return hint + page.compared;
}

/** Error divided by its tolerance. */
function ratioToTolerance({ max_error: error, tolerance }) {
  if (error === null || !isFinite(error)) return MAX_RATIO;
  if (tolerance) return error / tolerance;
  return error ? MAX_RATIO : 0;
}

function limitLabel({ tolerances, areSteps, areOneStep, areEqual }) {
  if (areOneStep) return "tolerance: one step (normal)";
  return areSteps && areEqual ? `tolerance: ${tolerances[0]} quantization steps` : "tolerance";
}

/** Reason why the models were not compared or timed; empty if unknown. */
function missingReason() {
  if (page.notes.length) return page.notes[0];
  return page.verdict.startsWith("inconclusive") ? page.verdict : "";
}

/** Text with the reason: "Not timed: LiteRT is not installed". */
function describeMissing(text) {
  const reason = missingReason().replace(/^(not compared and not timed|inconclusive): /, "");
  return reason ? `${text}: ${shortenNames(reason)}` : `${text}.`;
}

/** Draw a chart of the errors, with a logarithmic axis. */
function showErrors() {
  const parent = element("errors");
  if (!page.errors.length) {
    element("errors-hint").textContent = describeMissing("Not compared");
    return;
  }
  const description = describeTolerances();
  element("errors-hint").textContent = errorsHint(description);
  parent.replaceChildren();
  const width = Math.max(260, parent.clientWidth),
    height = 180,
    left = 46;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height + 40}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height + 40);
  const draw = (tag, attributes, text) => {
    const shape = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    if (text !== undefined) shape.textContent = text;
    svg.appendChild(shape);
    return shape;
  };
  const ratios = page.errors.map(ratioToTolerance);
  const topPower = Math.log10(Math.max(10, ...ratios)),
    bottomPower = Math.log10(MIN_RATIO);
  const y = (ratio) => {
    const power = Math.log10(Math.max(ratio, MIN_RATIO));
    return height - ((height - 10) * (power - bottomPower)) / (topPower - bottomPower);
  };
  for (let power = -4; power <= topPower; power += 1) {
    draw("line", {
      x1: left,
      x2: width,
      y1: y(10 ** power),
      y2: y(10 ** power),
      ...(power === 0 ? { class: "limit" } : {}),
    });
    draw(
      "text",
      { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" },
      power === -4 ? "equal" : String(10 ** power),
    );
  }
  draw(
    "text",
    { x: width - 4, y: y(1) - 5, "text-anchor": "end", style: "fill:var(--bad)" },
    limitLabel(description),
  );
  draw(
    "text",
    { x: (left + width) / 2, y: height + 34, "text-anchor": "middle" },
    "tensors in the order of execution",
  );
  const step = (width - left - 10) / Math.max(1, ratios.length);
  const first = page.errors.findIndex((item) => item.first_wrong);
  const wrongColor = page.wrong ? "#b3261e" : "#d97706";
  ratios.forEach((ratio, k) => {
    const { ok, operator, name, text } = page.errors[k];
    const dot = draw("circle", {
      cx: left + (k + 0.5) * step,
      cy: y(ratio),
      r: k === first ? 6 : 3,
      fill: ok ? "#3f6fd1" : wrongColor,
      class: k === first ? "first" : "",
    });
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${operator === null ? "input" : operatorLabel(operator)} ${name}: ${text}`;
    dot.appendChild(title);
    dot.addEventListener("click", () => operator !== null && showDetails(operator));
  });
  if (first >= 0) {
    const x = left + (first + 0.5) * step,
      operator = findOperator(page.errors[first].operator);
    const anchor = x < width / 3 ? "start" : x > (2 * width) / 3 ? "end" : "middle";
    draw(
      "text",
      { x, y: height + 16, "text-anchor": anchor, style: "fill:var(--bad)" },
      operator ? `first: op ${operator.place} ${operator.code}` : "first",
    );
  }
  parent.appendChild(svg);
}

const formatSeconds = (seconds) => `${+(1000 * seconds).toPrecision(3)} ms`;

const MAX_TIMED_ROWS = 25,
  MAX_UNTIMED_OPERATORS = 12;

/** Show the slowest operators, the operators without a time, and the time of the remaining nodes. */
function showTimes() {
  const parent = element("times");
  const addHint = (text) => make("p", text, parent, { class: "hint" });
  const timed = page.operators
    .filter((op) => op.microseconds)
    .sort((a, b) => b.microseconds - a.microseconds);
  if (!timed.length) {
    addHint(describeMissing("Not timed"));
    return;
  }
  const unowned = page.facts.unowned_microseconds || 0;
  const sum = (operators) => operators.reduce((total, op) => total + op.microseconds, 0);
  const total = sum(timed) + unowned;
  const { litert, onnxruntime, ratio } = page.runtimes;
  if (litert) {
    addHint(
      `Whole model in one thread: LiteRT ${formatSeconds(litert)}, ONNX Runtime ${formatSeconds(onnxruntime)} ` +
        `per run, ${ratio.toPrecision(2)} times LiteRT's.`,
    );
  }
  addHint(
    `By operator: one thread, ${(total / 1000).toPrecision(3)} ms per run in all. ` +
      "Operators that share nodes are one row. Each time is the mean of a few runs; onnx-tflite bench --profile " +
      "measures more runs, adds LiteRT's times, and counts operators that ONNX Runtime fuses as one, so its numbers " +
      "differ a little.",
  );
  const formatShare = (microseconds) => `${((100 * microseconds) / total).toFixed(1)} %`;
  const slowest = timed.slice(0, MAX_TIMED_ROWS),
    others = timed.slice(MAX_TIMED_ROWS);
  const rows = slowest.map((op) => [
    operatorLabel(op.index),
    op.microseconds.toFixed(1),
    formatShare(op.microseconds),
    "",
  ]);
  const timeTable = makeTable(parent, ["operator", "µs per run", "share", ""], rows, [1, 2]);
  timeTable.querySelectorAll("tbody tr").forEach((row, k) => {
    const fraction = (slowest[k].microseconds / slowest[0].microseconds).toFixed(4);
    make("span", null, row.lastChild, { class: "bar", style: `width:calc(min(300px, 25vw) * ${fraction})` });
  });
  linkRows(
    timeTable,
    slowest.map((op) => op.index),
  );
  const listUntimed = (text, operators) => {
    if (!operators.length) return;
    const labels = operators
      .slice(0, MAX_UNTIMED_OPERATORS)
      .map((op) => operatorLabel(op.index))
      .join(", ");
    const more = operators.length - MAX_UNTIMED_OPERATORS;
    addHint(`${text}: ${labels}${more > 0 ? ` and ${more} more` : ""}`);
  };
  const removed = page.operators.filter((op) => op.microseconds === null && op.nodes.length && !op.constant);
  listUntimed(
    "Too short to measure",
    page.operators.filter((op) => op.microseconds === 0),
  );
  listUntimed("No time, because ONNX Runtime fused the nodes into a neighbor's or removed them", removed);
  if (others.length) addHint(`${others.length} more operators: ${formatShare(sum(others))} together`);
  if (unowned) {
    addHint(`nodes that belong to no single operator: ${unowned.toFixed(1)} µs, ${formatShare(unowned)}`);
  }
}
