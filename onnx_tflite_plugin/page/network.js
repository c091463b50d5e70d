"use strict";
/* The network of the page: its layout, and a frame that scrolls, zooms and finds operators. */

const LABEL = 11, HEIGHT = 38; // pixels at a zoom of 1: font size of labels, height of an operator
const MAX_LAYOUT = 250; // operators laid out together: dagre recurses as deep as a chain is long

/** Inputs, operators and outputs of the drawing. Handles of states, their operators, and operators on constants alone are left out. */
function visible() {
  const constant = new Set(page.operators.filter((op) => op.constant).map((op) => op.index));
  const edges = page.edges.filter((edge) => edge.dtype !== "resource" && edge.dtype !== "variant" && !constant.has(edge.from) && !constant.has(edge.to));
  const joined = new Set(edges.flatMap((edge) => [edge.from, edge.to]));
  const operators = page.operators.filter((op) => !op.constant && (op.nodes.length || joined.has(op.index)));
  const interfaceNodes = (side) => page.interface.filter((value) => value.side === side && joined.has(value.index)).map((value) => ({
    ...value, code: side, nodes: [value.name], layout: "Input or output", quantization: "", microseconds: null }));
  return { edges, operators: [...interfaceNodes("input"), ...operators, ...interfaceNodes("output")] };
}

const edgeLabel = (edge) => `${edge.dtype} ${sizes(edge.shape)}`;
/** Node types of an operator, an If with the nodes inside it: "If of 2 Conv". */
const nodeLabels = (op) => op.nodes.map((text) => (text.endsWith("If") && (op.inner || []).length ? `${text} of ${op.inner.slice(0, 2).join(", ")}${op.inner.length > 2 ? ", …" : ""}` : text));

/** Positions of operators, and bends of edges by number. Pieces of the network stand one below the other, in execution order. */
function arrange(operators, edges, widths) {
  const positions = new Map(), bends = new Map();
  let top = 0;
  for (let start = 0; start < operators.length; start += MAX_LAYOUT) {
    const piece = operators.slice(start, start + MAX_LAYOUT);
    const within = new Set(piece.map((op) => op.index));
    const layout = new dagre.graphlib.Graph({ multigraph: true });
    layout.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26 });
    layout.setDefaultEdgeLabel(() => ({}));
    for (const op of piece) layout.setNode(String(op.index), { width: widths.get(op.index), height: HEIGHT });
    edges.forEach((edge, k) => {
      if (within.has(edge.from) && within.has(edge.to)) layout.setEdge(String(edge.from), String(edge.to), { width: 6.2 * edgeLabel(edge).length, height: 14, labelpos: "c" }, `e${k}`);
    });
    dagre.layout(layout);
    const { width, height } = layout.graph();
    for (const op of piece) {
      const { x, y } = layout.node(String(op.index));
      positions.set(String(op.index), { x: x - width / 2, y: y + top });
    }
    for (const { name } of layout.edges()) {
      const points = layout.edge({ v: String(edges[name.slice(1)].from), w: String(edges[name.slice(1)].to), name }).points;
      bends.set(name, points.slice(1, -1).map(({ x, y }) => ({ x: x - width / 2, y: y + top })));
    }
    top += height + HEIGHT;
  }
  return { positions, bends };
}

/** Bends for cytoscape: the share of the way from source to target, and the distance from that line. */
function segments(from, to, points) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy);
  return {
    weights: points.map(({ x, y }) => ((x - from.x) * dx + (y - from.y) * dy) / length ** 2),
    distances: points.map(({ x, y }) => ((y - from.y) * dx - (x - from.x) * dy) / length),
  };
}

function graph() {
  const { operators, edges } = visible();
  const forced = new Set(page.transposes.flatMap((transpose) => transpose.operators));
  const elements = [];
  const widths = new Map();
  for (const op of operators) {
    const label = `${op.layout === "Input or output" ? "" : `${op.place} `}${op.code}\n${nodeLabels(op).slice(0, 3).join(", ")}${op.nodes.length > 3 ? ", …" : ""}`;
    const width = Math.max(90, 7 * Math.max(...label.split("\n").map((line) => line.length)) + 12);
    widths.set(op.index, width);
    const classes = [forced.has(op.index) ? "forced" : "", op.float_island ? "island" : "", op.wrong ? "wrong" : ""];
    elements.push({ data: { id: String(op.index), label, width, color: COLORS[op.layout] || "#e5e7eb" }, classes: classes.join(" ") });
  }
  const { positions, bends } = arrange(operators, edges, widths);
  edges.forEach((edge, k) => {
    const [source, target, points] = [String(edge.from), String(edge.to), bends.get(`e${k}`) || []];
    const bent = segments(positions.get(source), positions.get(target), points);
    const straight = bent.distances.every((distance) => Math.abs(distance) < 1);
    elements.push({ data: { id: `e${k}`, source, target, label: edgeLabel(edge), ...(straight ? {} : bent) }, classes: straight ? "" : "bent" });
  });
  const style = getComputedStyle(document.documentElement);
  const [soft, paper] = ["--soft", "--paper"].map((name) => style.getPropertyValue(name).trim());
  const network = cytoscape({
    container: element("graph"), elements, minZoom: 0.02, maxZoom: 4,
    autoungrabify: true, textureOnViewport: elements.length > 1500, hideEdgesOnViewport: elements.length > 3000,
    layout: { name: "preset", positions: (node) => positions.get(node.id()), fit: true },
    style: [
      { selector: "node", style: { shape: "round-rectangle", width: "data(width)", height: HEIGHT, "background-color": "data(color)",
        label: "data(label)", color: "#1c2330", "text-wrap": "wrap", "text-valign": "center", "font-size": LABEL, "line-height": 1.25, "border-width": 1, "border-color": "#8a94a6", "min-zoomed-font-size": 5 } },
      { selector: "edge", style: { width: 1.2, "line-color": "#9aa3b2", "target-arrow-color": "#9aa3b2", "target-arrow-shape": "triangle", "curve-style": "bezier", "arrow-scale": 0.8,
        label: "data(label)", "font-size": LABEL, color: soft, "text-background-color": paper, "text-background-opacity": 1, "text-background-padding": 2, "min-zoomed-font-size": 5 } },
      { selector: ".bent", style: { "curve-style": "round-segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)", "segment-radii": 20, "edge-distances": "node-position" } },
      { selector: ".forced", style: { "border-width": 3, "border-color": "#c2410c" } },
      { selector: ".island", style: { "border-width": 3, "border-color": "#8b5cf6" } },
      { selector: ".wrong", style: { "background-color": "#b3261e", color: "#fff" } },
      { selector: ":selected", style: { "border-width": 4, "border-color": "#1d4ed8" } },
    ],
  });
  network.on("tap", "node", (event) => details(event.target.id()));
  network.elements().panify(); // a drag that starts on an operator also moves the network: on a phone, operators fill the width
  const box = network.elements().boundingBox(), start = operators.length ? positions.get(String(operators[0].index)) : { x: 0, y: 0 };
  window.graphOfPage = network;
  addControls(network, box, start);
  addSearch(operators);
  element("graph").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step || !operators.length) return;
    event.preventDefault();
    const at = operators.findIndex((op) => String(op.index) === selected());
    select(operators[at < 0 ? 0 : Math.min(operators.length - 1, Math.max(0, at + step))].index);
  });
}

/** Move by the wheel, zoom with Ctrl and by buttons. ``box``: of the network. ``start``: position of the first operator. */
function addControls(network, box, start) {
  const frame = element("graph"), margin = 30;
  const showPlace = () => {
    const { y1, h } = network.extent(), top = Math.max(0, (y1 - box.y1) / box.h), bottom = Math.min(1, (y1 + h - box.y1) / box.h);
    element("zoom").textContent = `${Math.round(100 * network.zoom())} %`;
    element("place").style.cssText = `top:${100 * top}%;height:${Math.max(2, 100 * (bottom - top))}%`;
    element("place").hidden = bottom - top > 0.99;
  };
  const showStart = () => { // in a readable size, also if only the beginning fits
    const { clientWidth: width, clientHeight: height } = frame;
    const zoom = Math.max(1, Math.min(1.5, (width - margin) / box.w, (height - margin) / box.h));
    const x = box.w * zoom < width ? (box.x1 + box.x2) / 2 : start.x, fits = box.h * zoom < height;
    network.viewport({ zoom, pan: { x: width / 2 - zoom * x, y: fits ? (height - zoom * (box.y1 + box.y2)) / 2 : margin - zoom * box.y1 } });
  };
  const zoomBy = (factor, at) => network.zoom({ level: network.zoom() * factor, renderedPosition: at || { x: frame.clientWidth / 2, y: frame.clientHeight / 2 } });
  const scroll = (event) => {
    event.stopPropagation(); // otherwise cytoscape would zoom
    const unit = event.deltaMode === 1 ? 16 : 1, { left, top } = frame.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoomBy(Math.exp(-Math.max(-50, Math.min(50, unit * event.deltaY)) / 150), { x: event.clientX - left, y: event.clientY - top });
      return;
    }
    const zoom = network.zoom(), pan = network.pan();
    const within = (delta, low, high, size) => (delta > 0 ? Math.min(delta, Math.max(0, high + margin - size)) : Math.max(delta, Math.min(0, low - margin)));
    const dx = within(unit * event.deltaX, zoom * box.x1 + pan.x, zoom * box.x2 + pan.x, frame.clientWidth);
    const dy = within(unit * event.deltaY, zoom * box.y1 + pan.y, zoom * box.y2 + pan.y, frame.clientHeight);
    if (Math.abs(dx) + Math.abs(dy) < 0.5) return; // at an end: the page scrolls on
    event.preventDefault();
    network.panBy({ x: -dx, y: -dy });
  };
  frame.parentElement.addEventListener("wheel", scroll, { capture: true, passive: false });
  network.on("viewport resize", showPlace);
  for (const [id, action] of [["zoom-in", () => zoomBy(1.25)], ["zoom-out", () => zoomBy(0.8)], ["fit", () => network.fit(undefined, 10)], ["start", showStart]]) element(id).addEventListener("click", action);
  showStart();
  showPlace();
}

/** Operators whose number, code, output or nodes hold the text. Only those with this number or label, if there are any. */
function find(operators, text) {
  const query = text.trim().replace(/\s+/g, " ").toLowerCase();
  if (!query) return [];
  const numbers = (op) => (op.operators || []).map(String);
  const words = (op) => [op.place, op.code, ...(op.codes || []), op.name, ...op.nodes, ...(op.inner || [])].join(" ").toLowerCase();
  if (/^\d+$/.test(query)) { const numbered = operators.filter((op) => numbers(op).includes(query)); if (numbered.length) return numbered; }
  const labeled = operators.filter((op) => [`${op.place} ${op.code}`, op.name].some((label) => label.toLowerCase() === query));
  if (labeled.length) return labeled;
  return operators.filter((op) => words(op).includes(query));
}

/** Search field: typing selects the first match, Enter the next one, Shift and Enter the previous one. */
function addSearch(operators) {
  const field = element("find");
  let matches = [], at = 0;
  const show = () => {
    element("found").textContent = !field.value.trim() ? "" : !matches.length ? "no match" : `${at + 1} of ${matches.length}${matches.length > 1 ? "; Enter: next" : ""}`;
    if (!matches.length) return;
    select(matches[at].index);
    element("panes").scrollIntoView({ block: "nearest" });
  };
  field.addEventListener("input", () => { matches = find(operators, field.value); at = 0; show(); });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !matches.length) return;
    event.preventDefault();
    at = (at + (event.shiftKey ? matches.length - 1 : 1)) % matches.length;
    show();
  });
}

const selected = () => { const node = window.graphOfPage.$("node:selected")[0]; return node && node.id(); };

/** Select an operator in the network, and show its details. */
function select(index) {
  const network = window.graphOfPage, node = network.getElementById(String(index));
  network.$(":selected").unselect();
  if (node.length) {
    const { x1, x2 } = network.extent(), box = node.boundingBox(), { x } = network.pan();
    node.select();
    network.center(node);
    if (box.x1 >= x1 && box.x2 <= x2) network.pan({ x, y: network.pan().y });
  }
  details(index);
}

