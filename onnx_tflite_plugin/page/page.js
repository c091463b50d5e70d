"use strict";
const page = JSON.parse(document.getElementById("data").textContent);
const COLORS = { Implicit: "#f2b8a0", Transparent: "#bfd7f5", Attribute: "#c9e7c4", Terminate: "#d9d3e8", Fused: "#f3d9a4", "Input or output": "#fff3bf" };
const SHORT = { Implicit: "layout fixed by ONNX", Transparent: "any layout", Attribute: "any layout, axes adapted", Terminate: "layout of the TFLite file", Fused: "fused operators" };
const MEANING = {
  Implicit: "ONNX fixes the layout, channels first, as for Conv.", Transparent: "Any layout gives the same result, as for Add.",
  Attribute: "Any layout; the axis numbers of the operator are adapted, as for Concat.",
  Terminate: "The layout of the TFLite file is kept, as for Reshape.",
  Fused: "Several operators of the file share the same ONNX nodes.",
};
const element = (id) => document.getElementById(id);

/** Append text that may wrap after the punctuation of a name, but not within a word or a number. */
function breakable(parent, text) {
  text.split(/(?<=[_/;:.](?=[A-Za-z_]))/).forEach((piece, k) => {
    if (k) parent.appendChild(document.createElement("wbr"));
    parent.appendChild(document.createTextNode(piece));
  });
}

function make(tag, text, parent, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) breakable(node, String(text));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (parent) parent.appendChild(node);
  return node;
}

function table(parent, headings, rows, numeric = []) {
  const tableElement = make("table", null, parent);
  const head = make("tr", null, make("thead", null, tableElement));
  headings.forEach((text, k) => make("th", text, head, numeric.includes(k) ? { class: "number" } : {}));
  const body = make("tbody", null, tableElement);
  for (const row of rows) {
    const tr = make("tr", null, body);
    row.forEach((cell, k) => make("td", cell, tr, numeric.includes(k) ? { class: "number" } : {}));
  }
  return tableElement;
}

function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["bytes", "kB", "MB", "GB"];
  let k = 0;
  while (bytes >= 1000 && k < 3) { bytes /= 1000; k += 1; }
  return `${k ? bytes.toPrecision(3) : bytes} ${units[k]}`;
}

/** Label of a group of operators: "3–14 LAYER_NORMALIZATION (12 operators)". */
const operatorLabel = (index) => { const op = page.operators.find((item) => item.index === index); return op ? `${op.place}\u00a0${op.code}` : `${index}`; };
const sizes = (shape) => `[${shape.map((n) => (n === null ? "?" : n)).join(", ")}]`;

/** Author's range as text. A range that covers the dtype is dequantized, except for images, whose values are pixels. */
function range(value) {
  if (!value.range) return "";
  const [low, high] = { uint8: [0, 255], int8: [-128, 127] }[value.dtype] || [];
  const dequantize = (number) => +(value.scale[0] * (number - value.zero_point[0])).toPrecision(3);
  const isWholeRange = value.kind !== "image" && value.scale && value.scale.length === 1 && value.range[0].every((x) => x === low) && value.range[1].every((x) => x === high);
  return isWholeRange ? `real values ${dequantize(low)} to ${dequantize(high)}` : `values ${value.range[0]} to ${value.range[1]}`;
}

/** Text with only the end of long names, which is more specific than the beginning. */
const shortened = (text) => text.replace(/[^\s']{70,}/g, (name) => `…${name.slice(-50).replace(/^[^/;]*[/;]/, "")}`);

function summary() {
  const facts = page.facts;
  element("line").textContent = facts.line;
  const verdict = element("verdict");
  const hasEndToEnd = page.outputs.some((output) => output.end_to_end && output.end_to_end !== output.error);
  verdict.textContent = (page.verdict || page.notes[0] || "") + (hasEndToEnd && !page.wrong && page.verification_notes.length ? "; the outputs of the whole network still differ:" : "");
  verdict.className = page.wrong ? "wrong" : page.verdict.startsWith("inconclusive") ? "undecided" : page.verdict ? "ok" : "";
  if (page.outputs.length) {
    const outputTable = table(element("outputs"), ["output", hasEndToEnd ? "error of its operator" : "error", "tolerance", ...(hasEndToEnd ? ["error of the whole network"] : [])],
      page.outputs.map((output) => [shortened(output.name), output.error, output.tolerance, ...(hasEndToEnd ? [output.end_to_end] : [])]));
    outputTable.querySelectorAll("tbody tr").forEach((row, k) => { if (!page.outputs[k].ok) row.children[1].className = "wrong"; row.firstChild.title = page.outputs[k].name; });
  }
  page.verification_notes.forEach((text) => make("li", shortened(text), element("verification-notes"), { title: text }));
  (page.facts.hints || []).forEach((text) => make("li", text, element("hints")));
  const interfaceRow = (side) => (value) => {
    const scale = value.scale ? (value.scale.length > 1 ? `${value.scale.length} scales` : `scale ${+value.scale[0].toPrecision(6)}, zero point ${value.zero_point[0]}`) : "";
    const labels = value.labels ? `${value.labels.length} label${value.labels.length > 1 ? "s" : ""}: ${value.labels.slice(0, 3).join(", ")}${value.labels.length > 3 ? "…" : ""}` : "";
    const metadata = [value.description, value.mean && (value.mean.some((x) => x) || value.std.some((x) => x !== 1)) ? `(x - ${value.mean}) / ${value.std}` : "", range(value),
      value.threshold === undefined ? "" : `score threshold ${+value.threshold.toPrecision(6)}`, labels];
    return [side, value.name, `${value.dtype} ${sizes(value.shape)}`, scale, metadata.filter(Boolean).map((text) => text.replace(/\.$/, "")).join("; ")];
  };
  const states = facts.states.map((state) => ["state", `${state.name}, next: ${state.next}`, `${state.dtype} ${sizes(state.shape)}`, "", ""]);
  const rows = [...facts.inputs.map(interfaceRow("input")), ...facts.outputs.map(interfaceRow("output")), ...states];
  const columns = ["", "name", "type", "quantization", "metadata"].map((text, k) => [text, k]).filter(([, k]) => k < 3 || rows.some((row) => row[k]));
  table(element("interface"), columns.map(([text]) => text), rows.map((row) => columns.map(([, k]) => row[k])));
  const factRows = [["TFLite file", size(facts.tflite_bytes)], ["ONNX model", `${size(facts.onnx_bytes)}, of which constants ${size(facts.constant_bytes)}`],
    ["operators of the main graph", facts.operators], ["nodes", facts.inner_nodes ? `${facts.nodes}, of these ${facts.inner_nodes} inside ${facts.containers.join(", ")}` : facts.nodes], ["opset", facts.opset], ...Object.entries(facts.provenance || {}), ...Object.entries(facts.authored)];
  table(element("facts"), ["", ""], factRows);
  page.notes.forEach((note) => make("li", note, element("notes")));
}

function legend() {
  const used = new Set(visible().operators.map((op) => op.layout));
  const add = (color, text, border, tag = "span", parent = element("legend")) => {
    const item = make(tag, null, parent);
    make("i", null, item, { style: `background:${color};${border || ""}` });
    item.appendChild(document.createTextNode(text));
  };
  const list = element("categories").querySelector("ul");
  for (const [name, color] of Object.entries(COLORS)) if (used.has(name) && MEANING[name]) { add(color, SHORT[name]); add(color, `${name}: ${MEANING[name]}`, "", "li", list); }
  if (!list.children.length) element("categories").remove();
  if (used.has("Input or output")) add(COLORS["Input or output"], "input or output of the model");
  if (page.transposes.length) add("transparent", "has a Transpose", "box-shadow:inset 0 0 0 2px #c2410c");
  if (page.operators.some((op) => op.float_island)) add("transparent", "float in a quantized network", "box-shadow:inset 0 0 0 2px #8b5cf6");
  if (page.operators.some((op) => op.wrong)) add("#b3261e", "first outside its tolerance");
}

/** Turn the first column of a table into buttons that select operators, also from the keyboard. */
function linkRows(linkedTable, indices) {
  linkedTable.querySelectorAll("tbody tr").forEach((row, k) => {
    if (indices[k] === undefined) return;
    const cell = row.firstChild, text = cell.textContent;
    cell.replaceChildren();
    make("button", text, cell, { class: "link", type: "button" }).addEventListener("click", () => { select(indices[k]); element("panes").scrollIntoView({ block: "nearest" }); });
  });
}

function details(index) {
  const value = page.interface.find((item) => item.index === index);
  const op = page.operators.find((item) => String(item.index) === String(index));
  const aside = element("details");
  aside.replaceChildren();
  if (value) {
    make("h3", `${value.side} ${value.name}`, aside);
    make("p", `${value.dtype} ${sizes(value.shape)}`, aside);
    return;
  }
  make("h3", `${op.place} ${op.code}`, aside);
  const list = make("dl", null, aside);
  const error = page.errors.find((item) => item.operator === op.index);
  const transposeTexts = page.transposes.filter((transpose) => transpose.operators.includes(op.index)).map((transpose) => `${transpose.tensor} ${transpose.perm}`);
  const isTimed = page.operators.some((item) => item.microseconds !== null) && op.nodes.length;
  const facts = [["operators", op.codes.length > 1 ? op.operators.map((number, k) => `${number} ${op.codes[k]}`).join(", ") : ""],
    ["output", op.name], ["type", `${op.dtype} ${sizes(op.shape)}${op.tflite_dtype && op.tflite_dtype !== op.dtype ? `, ${op.tflite_dtype} in the TFLite file` : ""}`], ["ONNX nodes", op.nodes.join(", ") || "none: computed at conversion, or part of another"],
    ["nodes inside these", (op.inner || []).join(", ")],
    ["layout category", op.layout === "Fused" ? "" : op.layout], ["quantization", op.quantization],
    ["time per run", op.microseconds ? `${op.microseconds} µs` : op.microseconds === 0 ? "too short to measure" : isTimed ? "none: ONNX Runtime removed the nodes or fused them into a neighbor's" : ""],
    ["against LiteRT", error ? error.text : ""], ["Transposes", transposeTexts.join("; ")]];
  for (const [name, text] of facts) if (text) { make("dt", name, list); make("dd", text, list); }
}

function errors() {
  const parent = element("errors");
  if (!page.errors.length) { element("errors-hint").textContent = "Not compared."; return; }
  const tolerances = page.errors.filter((item) => item.unit === "step").map((item) => item.tolerance), steps = tolerances.length > page.errors.length / 2;
  const oneStep = steps && tolerances.every((tolerance) => tolerance === 1), equal = tolerances.every((tolerance) => tolerance === tolerances[0]);
  const isFloat = steps && page.operators.some((op) => op.dtype.startsWith("float") && op.tflite_dtype && op.tflite_dtype !== op.dtype);
  const hint = "Each dot is the error of one tensor as a share of its tolerance, computed with LiteRT's values as inputs. Tensors above the red line differ. ";
  element("errors-hint").textContent = hint + (isFloat ? "The ONNX model has floats; their errors are in quantization steps of the TFLite file. " : "") + (oneStep ? "A dot on the line is one quantization step off, which is normal: LiteRT's kernels differ from each other by as much. " : "") + page.compared;
  const NS = "http://www.w3.org/2000/svg";
  parent.replaceChildren();
  const width = Math.max(260, parent.clientWidth), height = 180, left = 46, floor = 1e-4;
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height + 40}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height + 40);
  const draw = (tag, attributes, text) => {
    const shape = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    if (text !== undefined) shape.textContent = text;
    svg.appendChild(shape);
    return shape;
  };
  const shares = page.errors.map((item) => (item.max_error === null || !isFinite(item.max_error) ? 100 : item.tolerance ? item.max_error / item.tolerance : item.max_error ? 100 : 0));
  const top = Math.max(10, ...shares);
  const y = (share) => height - (height - 10) * (Math.log10(Math.max(share, floor)) - Math.log10(floor)) / (Math.log10(top) - Math.log10(floor));
  for (let power = -4; power <= Math.log10(top); power += 1) {
    draw("line", { x1: left, x2: width, y1: y(10 ** power), y2: y(10 ** power), ...(power === 0 ? { class: "limit" } : {}) });
    draw("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, power === -4 ? "equal" : String(10 ** power));
  }
  draw("text", { x: width - 4, y: y(1) - 5, "text-anchor": "end", style: "fill:var(--bad)" }, oneStep ? "tolerance: one step (normal)" : steps && equal ? `tolerance: ${tolerances[0]} quantization steps` : "tolerance");
  draw("text", { x: (left + width) / 2, y: height + 34, "text-anchor": "middle" }, "tensors in the order of execution");
  const step = (width - left - 10) / Math.max(1, shares.length);
  const first = page.errors.findIndex((item) => item.first_wrong);
  const beyond = page.wrong ? "#b3261e" : "#d97706";
  shares.forEach((share, k) => {
    const mark = draw("circle", { cx: left + (k + 0.5) * step, cy: y(share), r: k === first ? 6 : 3, fill: page.errors[k].ok ? "#3f6fd1" : beyond, class: k === first ? "first" : "" });
    const title = document.createElementNS(NS, "title");
    title.textContent = `${page.errors[k].operator === null ? "input" : operatorLabel(page.errors[k].operator)} ${page.errors[k].name}: ${page.errors[k].text}`;
    mark.appendChild(title);
    mark.addEventListener("click", () => page.errors[k].operator !== null && details(page.errors[k].operator));
  });
  if (first >= 0) {
    const x = left + (first + 0.5) * step, operator = page.operators.find((item) => item.index === page.errors[first].operator);
    const anchor = x < width / 3 ? "start" : x > 2 * width / 3 ? "end" : "middle";
    draw("text", { x, y: height + 16, "text-anchor": anchor, style: "fill:var(--bad)" }, operator ? `first: op ${operator.place} ${operator.code}` : "first");
  }
  parent.appendChild(svg);
}

const milliseconds = (seconds) => `${+(1000 * seconds).toPrecision(3)} ms`;

function times() {
  const timed = page.operators.filter((op) => op.microseconds).sort((a, b) => b.microseconds - a.microseconds);
  const parent = element("times"), other = page.facts.unowned_microseconds || 0;
  const total = timed.reduce((sum, op) => sum + op.microseconds, other);
  if (!timed.length) { make("p", "Not timed.", parent, { class: "hint" }); return; }
  const { litert, onnxruntime, ratio } = page.runtimes;
  if (litert) make("p", `Whole model in one thread: LiteRT ${milliseconds(litert)}, ONNX Runtime ${milliseconds(onnxruntime)} per run, ${ratio.toPrecision(2)} times LiteRT's.`, parent, { class: "hint" });
  make("p", `By operator: one thread, ${(total / 1000).toPrecision(3)} ms per run in all. Operators that share nodes are one row. Each time is the mean of a few runs; onnx-tflite bench --profile measures more runs, adds LiteRT's times, and counts operators that ONNX Runtime fuses as one, so its numbers differ a little.`, parent, { class: "hint" });
  const share = (microseconds) => `${(100 * microseconds / total).toFixed(1)} %`;
  const rows = table(parent, ["operator", "µs per run", "share", ""], timed.slice(0, 25).map((op) => [operatorLabel(op.index), op.microseconds.toFixed(1), share(op.microseconds), ""]), [1, 2]);
  rows.querySelectorAll("tbody tr").forEach((row, k) => make("span", null, row.lastChild, { class: "bar", style: `width:calc(min(300px, 25vw) * ${(timed[k].microseconds / timed[0].microseconds).toFixed(4)})` }));
  linkRows(rows, timed.slice(0, 25).map((op) => op.index));
  const untimed = (text, ops) => { if (ops.length) make("p", `${text}: ${ops.slice(0, 12).map((op) => operatorLabel(op.index)).join(", ")}${ops.length > 12 ? ` and ${ops.length - 12} more` : ""}`, parent, { class: "hint" }); };
  untimed("Too short to measure", page.operators.filter((op) => op.microseconds === 0));
  untimed("No time, because ONNX Runtime fused the nodes into a neighbor's or removed them", page.operators.filter((op) => op.microseconds === null && op.nodes.length && !op.constant));
  const rest = timed.slice(25).reduce((sum, op) => sum + op.microseconds, 0);
  if (rest) make("p", `${timed.length - 25} more operators: ${share(rest)} together`, parent, { class: "hint" });
  if (other) make("p", `nodes that belong to no single operator: ${other.toFixed(1)} µs, ${share(other)}`, parent, { class: "hint" });
}

function transposes() {
  if (!page.transposes.length) { make("p", "None.", element("transposes"), { class: "hint" }); return; }
  const hasSizes = page.transposes.some((transpose) => transpose.elements !== null);
  const users = (transpose) => [...transpose.operators.map(operatorLabel), ...(transpose.inside ? [`inside ${transpose.inside}`] : [])].join(", ");
  const rows = page.transposes.map((transpose) => [transpose.tensor, transpose.perm, users(transpose), ...(hasSizes ? [transpose.elements === null ? "unknown" : transpose.elements] : [])]);
  table(element("transposes"), ["tensor", "perm", "operators", ...(hasSizes ? ["elements"] : [])], rows, [3]);
}

function operators() {
  const { inner_nodes: inner, containers } = page.facts;
  if (inner) element("inner").textContent = `Nodes inside ${containers.join(", ")} are in brackets. Only one branch of an If runs.`;
  const counts = new Map();
  const count = (nodes, texts) => {
    for (const text of texts) {
      const [, times, name] = text.match(/^(?:(\d+) )?(.*)$/);
      nodes.set(name, (nodes.get(name) || 0) + Number(times || 1));
    }
    return nodes;
  };
  const becomes = (nodes) => [...nodes].sort((a, b) => b[1] - a[1]).map(([name, times]) => `${times}\u00a0${name}`).join(", ");
  const isTimed = page.operators.some((op) => op.microseconds !== null);
  const duration = (row) => (row.microseconds ? row.microseconds.toFixed(1) : !isTimed || !row.nodes.size ? "" : row.timed ? "too short" : "fused");
  for (const op of page.operators) {
    const key = `${op.code}|${op.layout}`;
    const row = counts.get(key) || { op, count: 0, microseconds: 0, timed: 0, nodes: new Map(), inner: new Map() };
    row.count += 1; row.microseconds += op.microseconds || 0; row.timed += op.microseconds !== null;
    count(row.nodes, op.nodes); count(row.inner, op.inner || []);
    counts.set(key, row);
  }
  const kinds = [...counts.values()].sort((a, b) => b.count - a.count);
  const rows = kinds.map((row) => [row.op.code, row.count, row.op.layout, (becomes(row.nodes) + (row.inner.size ? ` (${becomes(row.inner)})` : "")) || "no node", duration(row)]);
  const unowned = page.facts.unowned || [];
  if (unowned.length) rows.push(["no operator", "", "", becomes(count(new Map(), unowned)), ""]);
  const operatorTable = table(element("operators"), ["operator", "count", "layout category", "becomes", "µs per run"], rows, [1, 4]);
  linkRows(operatorTable, kinds.map((row) => row.op.index));
}

for (const part of [summary, legend, graph, errors, times, transposes, operators]) part();
window.addEventListener("resize", errors);
document.body.dataset.drawn = "yes";
