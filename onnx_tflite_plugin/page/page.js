"use strict";
/* The sections of the page, except for the network and the measurements. */

const page = JSON.parse(document.getElementById("data").textContent);
const LAYOUT_COLORS = {
  Implicit: "#f2b8a0",
  Transparent: "#bfd7f5",
  Attribute: "#c9e7c4",
  Terminate: "#d9d3e8",
  Fused: "#f3d9a4",
  "Input or output": "#fff3bf",
};
const LAYOUT_LABELS = {
  Implicit: "layout fixed by ONNX",
  Transparent: "any layout",
  Attribute: "any layout, axes adapted",
  Terminate: "layout of the TFLite file",
  Fused: "fused operators",
};
const LAYOUT_DESCRIPTIONS = {
  Implicit: "ONNX fixes the layout, channels first, as for Conv.",
  Transparent: "Any layout gives the same result, as for Add.",
  Attribute: "Any layout; the axis numbers of the operator are adapted, as for Concat.",
  Terminate: "The layout of the TFLite file is kept, as for Reshape.",
  Fused: "Several operators of the file share the same ONNX nodes.",
};
const element = (id) => document.getElementById(id);

/** Append text that may wrap after the punctuation of a name, but not within a word or a number. */
function appendText(parent, text) {
  text.split(/(?<=[_/;:.](?=[A-Za-z_]))/).forEach((piece, k) => {
    if (k) parent.appendChild(document.createElement("wbr"));
    parent.appendChild(document.createTextNode(piece));
  });
}

/** Create an element, and append it to ``parent`` if that is given. */
function make(tag, text, parent, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) appendText(node, String(text));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (parent) parent.appendChild(node);
  return node;
}

/** Append a table. ``numericColumns``: the numbers of the columns that are aligned as numbers. */
function makeTable(parent, headings, rows, numericColumns = []) {
  const attributes = (column) => (numericColumns.includes(column) ? { class: "number" } : {});
  const tableElement = make("table", null, parent);
  const head = make("tr", null, make("thead", null, tableElement));
  headings.forEach((text, column) => make("th", text, head, attributes(column)));
  const body = make("tbody", null, tableElement);
  for (const row of rows) {
    const tr = make("tr", null, body);
    row.forEach((cell, column) => make("td", cell, tr, attributes(column)));
  }
  return tableElement;
}

/** Number of bytes with a unit; empty if unknown. */
function formatBytes(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["bytes", "kB", "MB", "GB"];
  let k = 0;
  while (bytes >= 1000 && k < 3) {
    bytes /= 1000;
    k += 1;
  }
  return `${k ? bytes.toPrecision(3) : bytes} ${units[k]}`;
}

const findOperator = (index) => page.operators.find((op) => op.index === index);

/** Position and code of an operator, such as "3–14 LAYER_NORMALIZATION". */
function operatorLabel(index) {
  const op = findOperator(index);
  return op ? `${op.place}\u00a0${op.code}` : `${index}`;
}

const formatShape = (shape) => `[${shape.map((n) => (n === null ? "?" : n)).join(", ")}]`;

/** Text in which long names are cut to their ends, which are more specific than their beginnings. */
const shortenNames = (text) =>
  text.replace(/[^\s']{70,}/g, (name) => `…${name.slice(-50).replace(/^[^/;]*[/;]/, "")}`);

function showSummary() {
  element("line").textContent = page.facts.line;
  showVerdict();
  page.verification_notes.forEach((text) => {
    make("li", shortenNames(text), element("verification-notes"), { title: text });
  });
  (page.facts.hints || []).forEach((text) => make("li", text, element("hints")));
  showInterface();
  showFacts();
  page.notes.forEach((note) => make("li", note, element("notes")));
}

function showVerdict() {
  const hasEndToEnd = page.outputs.some((output) => output.end_to_end && output.end_to_end !== output.error);
  const onlyOutputsDiffer = hasEndToEnd && !page.wrong && page.verification_notes.length;
  const verdict = element("verdict");
  verdict.textContent = page.verdict || page.notes[0] || "";
  if (onlyOutputsDiffer && !page.verdict.includes("; outputs differ"))
    verdict.textContent += "; the outputs of the whole network still differ:";
  if (page.wrong) verdict.className = "wrong";
  else if (page.verdict.startsWith("inconclusive")) verdict.className = "undecided";
  else verdict.className = page.verdict ? "ok" : "";
  const word = { wrong: "FAILED", ok: "OK" }[verdict.className];
  if (word) verdict.prepend(make("strong", word), ": ");
  const wrongOperator = page.operators.find((op) => op.wrong);
  if (wrongOperator) {
    verdict.append("; ");
    make("span", null, verdict).append("first wrong operator: ", makeLink(wrongOperator.index));
  }
  if (!page.outputs.length) return;
  const headings = ["output", hasEndToEnd ? "error of its operator" : "error", "tolerance"];
  if (hasEndToEnd) headings.push("error of the whole network");
  const rows = page.outputs.map((output) => {
    const row = [shortenNames(output.name), output.error, output.tolerance];
    return hasEndToEnd ? [...row, output.end_to_end] : row;
  });
  makeTable(element("outputs"), headings, rows)
    .querySelectorAll("tbody tr")
    .forEach((row, k) => {
      if (!page.outputs[k].ok) row.children[1].className = "wrong";
      row.firstChild.title = page.outputs[k].name;
    });
}

function formatQuantization(value) {
  if (!value.scale) return "";
  if (value.scale.length > 1) return `${value.scale.length} scales`;
  return `scale ${+value.scale[0].toPrecision(6)}, zero point ${value.zero_point[0]}`;
}

/** Description and further metadata of a graph input or output. */
function formatMetadata(value) {
  const parts = [value.description || "", ...(value.metadata || [])].filter((text) => text);
  return parts.map((text) => text.replace(/\.$/, "")).join("; ");
}

function showInterface() {
  const { inputs, outputs, states } = page.facts;
  const type = (value) => `${value.dtype} ${formatShape(value.shape)}`;
  const row = (side) => (value) => [
    side,
    value.name,
    type(value),
    formatQuantization(value),
    formatMetadata(value),
  ];
  const stateRows = states.map((state) => [
    "state",
    `${state.name}, next: ${state.next}`,
    type(state),
    "",
    "",
  ]);
  const rows = [...inputs.map(row("input")), ...outputs.map(row("output")), ...stateRows];
  const columns = ["", "name", "type", "quantization", "metadata"]
    .map((heading, k) => [heading, k])
    .filter(([, k]) => k < 3 || rows.some((cells) => cells[k]));
  const headings = columns.map(([heading]) => heading);
  makeTable(
    element("interface"),
    headings,
    rows.map((cells) => columns.map(([, k]) => cells[k])),
  );
}

function showFacts() {
  const facts = page.facts;
  const inner = facts.inner_nodes
    ? `, ${facts.inner_nodes} of them inside ${facts.containers.join(", ")}`
    : "";
  const onnxSizes = `${formatBytes(facts.onnx_bytes)}, of which constants ${formatBytes(facts.constant_bytes)}`;
  makeTable(
    element("facts"),
    ["", ""],
    [
      ["TFLite file", formatBytes(facts.tflite_bytes)],
      ["ONNX model", onnxSizes],
      ["operators of the main graph", facts.operators],
      ["nodes", `${facts.nodes}${inner}`],
      ["opset", facts.opset],
      ...Object.entries(facts.provenance || {}),
      ...Object.entries(facts.authored),
    ],
  );
}

function showLegend() {
  const layouts = new Set(visibleNetwork().operators.map((op) => op.layout));
  const add = (color, text, border, tag = "span", parent = element("legend")) => {
    const item = make(tag, null, parent);
    make("i", null, item, { style: `background:${color};${border || ""}` });
    item.appendChild(document.createTextNode(text));
  };
  const list = element("categories").querySelector("ul");
  for (const [name, color] of Object.entries(LAYOUT_COLORS)) {
    if (!layouts.has(name) || !LAYOUT_DESCRIPTIONS[name]) continue;
    add(color, `${name}: ${LAYOUT_LABELS[name]}`);
    add(color, `${name}: ${LAYOUT_DESCRIPTIONS[name]}`, "", "li", list);
  }
  if (!list.children.length) element("categories").remove();
  if (layouts.has("Input or output")) add(LAYOUT_COLORS["Input or output"], "input or output of the model");
  if (page.transposes.length) add("transparent", "has a Transpose", "box-shadow:inset 0 0 0 2px #c2410c");
  if (page.operators.some((op) => op.float_island))
    add("transparent", "float in a quantized network", "box-shadow:inset 0 0 0 2px #8b5cf6");
  if (page.operators.some((op) => op.wrong)) add("#b3261e", "first outside its tolerance");
}

/** Create a button that selects an operator in the network, and shows the network. */
function makeLink(index, text = operatorLabel(index)) {
  const button = make("button", text, null, { class: "link", type: "button" });
  button.addEventListener("click", () => {
    select(index);
    element("panes").scrollIntoView({ block: "nearest" });
  });
  return button;
}

/** Turn the first column of a table into buttons that select operators, also from the keyboard. */
function linkRows(tableElement, indices) {
  tableElement.querySelectorAll("tbody tr").forEach((row, k) => {
    if (indices[k] === undefined) return;
    const cell = row.firstChild,
      text = cell.textContent;
    cell.replaceChildren(makeLink(indices[k], text));
  });
}

/** Show the details of an operator, or of a graph input or output. */
function showDetails(index) {
  const value = page.interface.find((item) => item.index === index);
  const op = page.operators.find((item) => String(item.index) === String(index));
  const aside = element("details");
  aside.replaceChildren();
  if (value) {
    make("h3", `${value.side} ${value.name}`, aside);
    make("p", `${value.dtype} ${formatShape(value.shape)}`, aside);
    return;
  }
  make("h3", `${op.place} ${op.code}`, aside);
  const list = make("dl", null, aside);
  const error = page.errors.find((item) => item.operator === op.index);
  const transposes = page.transposes.filter((transpose) => transpose.operators.includes(op.index));
  const tfliteDtype =
    op.tflite_dtype && op.tflite_dtype !== op.dtype ? `, ${op.tflite_dtype} in the TFLite file` : "";
  const fusedOperators =
    op.codes.length > 1 ? op.operators.map((number, k) => `${number} ${op.codes[k]}`) : [];
  const facts = [
    ["operators", fusedOperators.join(", ")],
    ["output", op.name],
    ["type", `${op.dtype} ${formatShape(op.shape)}${tfliteDtype}`.trim()],
    ["ONNX nodes", op.nodes.join(", ") || describeMissingNodes(op)],
    ["nodes inside these", (op.inner || []).join(", ")],
    ["layout category", op.layout === "Fused" ? "" : op.layout],
    ["quantization", op.quantization],
    ["time per run", formatTime(op)],
    ["against LiteRT", error ? error.text : ""],
    ["Transposes", transposes.map((transpose) => `${transpose.tensor} ${transpose.perm}`).join("; ")],
  ];
  for (const [name, text] of facts) {
    if (!text) continue;
    make("dt", name, list);
    make("dd", text, list);
  }
}

/** Reason why an operator has no node. */
function describeMissingNodes(op) {
  return op.constant
    ? "none: the result is a constant, computed at conversion"
    : "none: nodes of neighboring operators include the operator";
}

function formatTime(op) {
  if (op.microseconds) return `${op.microseconds} µs`;
  if (op.microseconds === 0) return "too short to measure";
  const isModelTimed = page.operators.some((item) => item.microseconds !== null);
  if (!isModelTimed || !op.nodes.length) return "";
  return "none: ONNX Runtime removed the nodes or fused them into a neighbor's";
}

/** Number of elements that a Transpose moves, or the reason why it is unknown. */
function formatElements(transpose) {
  if (transpose.elements !== null) return transpose.elements;
  return transpose.shape ? `dynamic shape ${formatShape(transpose.shape)}` : "shape not in the ONNX model";
}

function showTransposes() {
  const parent = element("transposes");
  if (!page.transposes.length) {
    make("p", "None.", parent, { class: "hint" });
    return;
  }
  const hasSizes = page.transposes.some((transpose) => transpose.elements !== null);
  const rows = page.transposes.map((transpose) => {
    const users = transpose.operators.map(operatorLabel);
    if (transpose.inside) users.push(`inside ${transpose.inside}`);
    const row = [transpose.tensor, transpose.perm, users.join(", ")];
    return hasSizes ? [...row, formatElements(transpose)] : row;
  });
  makeTable(parent, ["tensor", "perm", "operators", ...(hasSizes ? ["elements"] : [])], rows, [3]);
}

/** Show a row for each operator code and layout category. */
function showOperators() {
  const { inner_nodes: innerNodes, containers } = page.facts;
  if (innerNodes)
    element("inner").textContent =
      `Nodes inside ${containers.join(", ")} are in brackets. Only one branch of an If runs.`;
  const groups = groupOperators();
  const isModelTimed = page.operators.some((op) => op.microseconds !== null);
  const rows = groups.map((group) => {
    let time = "";
    if (group.microseconds) time = group.microseconds.toFixed(1);
    else if (isModelTimed && group.nodes.size) time = group.timedCount ? "too short" : "fused";
    return [
      group.op.code,
      group.count,
      group.op.layout,
      formatNodes(group.nodes, group.inner) || "no node",
      time,
    ];
  });
  const unowned = page.facts.unowned || [];
  const unownedInner = addCounts(new Map(), page.facts.unowned_inner || []);
  if (unowned.length) rows.push(["the whole model", "", "", formatNodes(addCounts(new Map(), unowned), unownedInner), ""]);
  const headings = ["operator", "count", "layout category", "becomes", "µs per run"];
  const operatorTable = makeTable(element("operators"), headings, rows, [1, 4]);
  linkRows(
    operatorTable,
    groups.map((group) => group.op.index),
  );
}

/** Nodes of an operator, with the nodes of inner graphs in brackets. */
function formatNodes(nodes, inner) {
  return formatCounts(nodes) + (inner.size ? ` (${formatCounts(inner)})` : "");
}

/** Operators grouped by code and layout category, largest group first. */
function groupOperators() {
  const groups = new Map();
  for (const op of page.operators) {
    const key = `${op.code}|${op.layout}`;
    const newGroup = { op, count: 0, microseconds: 0, timedCount: 0, nodes: new Map(), inner: new Map() };
    const group = groups.get(key) || newGroup;
    group.count += 1;
    group.microseconds += op.microseconds || 0;
    group.timedCount += op.microseconds !== null;
    addCounts(group.nodes, op.nodes);
    addCounts(group.inner, op.inner || []);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

/** Add texts such as "Conv" and "2 Conv" to the number of nodes by type. */
function addCounts(counts, texts) {
  for (const text of texts) {
    const [, count, name] = text.match(/^(?:(\d+) )?(.*)$/);
    counts.set(name, (counts.get(name) || 0) + Number(count || 1));
  }
  return counts;
}

/** Number of nodes by type as text, most frequent first. */
function formatCounts(counts) {
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted.map(([name, count]) => `${count}\u00a0${name}`).join(", ");
}

const SECTIONS = [showSummary, showLegend, showNetwork, showErrors, showTimes, showTransposes, showOperators];
for (const showSection of SECTIONS) showSection();
window.addEventListener("resize", showErrors);
document.body.dataset.drawn = "yes";
