"use strict";
/* The network of the page: its layout, and a frame that scrolls, zooms and finds operators. */

const LABEL_SIZE = 11,
  OPERATOR_HEIGHT = 38; // pixels at a zoom of 1
const MAX_LAYOUT = 250; // operators laid out together: dagre recurses as deep as a chain is long

/** Operators and edges to draw. Constant operators, and state handles with the operators that create them, are left out. */
function visibleNetwork() {
  const constants = new Set(page.operators.filter((op) => op.constant).map((op) => op.index));
  const isHandle = (edge) => edge.dtype === "resource" || edge.dtype === "variant";
  const edges = page.edges.filter(
    (edge) => !isHandle(edge) && !constants.has(edge.from) && !constants.has(edge.to),
  );
  const connected = new Set(edges.flatMap((edge) => [edge.from, edge.to]));
  const operators = page.operators.filter(
    (op) => !op.constant && (op.nodes.length || connected.has(op.index)),
  );
  const toNode = (value) => ({
    ...value,
    code: value.side,
    nodes: [value.name],
    layout: "Input or output",
    quantization: "",
    microseconds: null,
  });
  const interfaceNodes = (side) =>
    page.interface.filter((value) => value.side === side && connected.has(value.index)).map(toNode);
  return { edges, operators: [...interfaceNodes("input"), ...operators, ...interfaceNodes("output")] };
}

const edgeLabel = (edge) => `${edge.dtype} ${formatShape(edge.shape)}`.trim();
const listFirst = (texts, count) => `${texts.slice(0, count).join(", ")}${texts.length > count ? ", …" : ""}`;

/** Node types of an operator. That of an If names the nodes inside, such as "If of 2 Conv". */
function nodeLabels(op) {
  const inner = op.inner || [];
  return op.nodes.map((text) =>
    text.endsWith("If") && inner.length ? `${text} of ${listFirst(inner, 2)}` : text,
  );
}

/**
 * Positions of operators by index, and bends of edges by id.
 *
 * Long networks are laid out in pieces, one below the other.
 */
function arrangeNetwork(operators, edges, widths) {
  const positions = new Map(),
    bends = new Map();
  let top = 0;
  for (let start = 0; start < operators.length; start += MAX_LAYOUT) {
    const piece = operators.slice(start, start + MAX_LAYOUT);
    const indices = new Set(piece.map((op) => op.index));
    const layout = new dagre.graphlib.Graph({ multigraph: true });
    layout.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26 });
    layout.setDefaultEdgeLabel(() => ({}));
    for (const op of piece) layout.setNode(String(op.index), { width: widths.get(op.index), height: OPERATOR_HEIGHT });
    edges.forEach((edge, k) => {
      if (!indices.has(edge.from) || !indices.has(edge.to)) return;
      const label = { width: 6.2 * edgeLabel(edge).length, height: 14, labelpos: "c" };
      layout.setEdge(String(edge.from), String(edge.to), label, `e${k}`);
    });
    dagre.layout(layout);
    const { width, height } = layout.graph();
    for (const op of piece) {
      const { x, y } = layout.node(String(op.index));
      positions.set(String(op.index), { x: x - width / 2, y: y + top });
    }
    for (const { name } of layout.edges()) {
      const edge = edges[name.slice(1)];
      const { points } = layout.edge({ v: String(edge.from), w: String(edge.to), name });
      bends.set(
        name,
        points.slice(1, -1).map(({ x, y }) => ({ x: x - width / 2, y: y + top })),
      );
    }
    top += height + OPERATOR_HEIGHT;
  }
  return { positions, bends };
}

/** Bends for cytoscape: fractions of the way from source to target, and distances from the straight line. */
function segmentsOfEdge(from, to, points) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy);
  return {
    weights: points.map(({ x, y }) => ((x - from.x) * dx + (y - from.y) * dy) / length ** 2),
    distances: points.map(({ x, y }) => ((y - from.y) * dx - (x - from.x) * dy) / length),
  };
}

/** Draw the network. */
function showNetwork() {
  const { operators, edges } = visibleNetwork();
  const transposed = new Set(page.transposes.flatMap((transpose) => transpose.operators));
  const elements = [];
  const widths = new Map();
  for (const op of operators) {
    const numbers = op.layout === "Input or output" ? "" : `${op.place} `;
    const label = `${numbers}${op.code}\n${listFirst(nodeLabels(op), 3)}`;
    const width = Math.max(90, 7 * Math.max(...label.split("\n").map((line) => line.length)) + 12);
    widths.set(op.index, width);
    const classes = [
      transposed.has(op.index) ? "transposed" : "",
      op.float_island ? "island" : "",
      op.wrong ? "wrong" : "",
    ];
    const color = LAYOUT_COLORS[op.layout] || "#e5e7eb";
    elements.push({ data: { id: String(op.index), label, width, color }, classes: classes.join(" ") });
  }
  const { positions, bends } = arrangeNetwork(operators, edges, widths);
  edges.forEach((edge, k) => {
    const [source, target, points] = [String(edge.from), String(edge.to), bends.get(`e${k}`) || []];
    const segments = segmentsOfEdge(positions.get(source), positions.get(target), points);
    const isBent = !segments.distances.every((distance) => Math.abs(distance) < 1);
    const data = { id: `e${k}`, source, target, label: edgeLabel(edge), ...(isBent ? segments : {}) };
    elements.push({ data, classes: isBent ? "bent" : "" });
  });
  const pageStyle = getComputedStyle(document.documentElement);
  const [textColor, background] = ["--soft", "--paper"].map((name) =>
    pageStyle.getPropertyValue(name).trim(),
  );
  const network = cytoscape({
    container: element("graph"),
    elements,
    minZoom: 0.02,
    maxZoom: 4,
    autoungrabify: true,
    textureOnViewport: elements.length > 1500,
    hideEdgesOnViewport: elements.length > 3000,
    layout: { name: "preset", positions: (node) => positions.get(node.id()), fit: true },
    style: [
      {
        selector: "node",
        style: {
          shape: "round-rectangle",
          width: "data(width)",
          height: OPERATOR_HEIGHT,
          "background-color": "data(color)",
          label: "data(label)",
          color: "#1c2330",
          "text-wrap": "wrap",
          "text-valign": "center",
          "font-size": LABEL_SIZE,
          "line-height": 1.25,
          "border-width": 1,
          "border-color": "#8a94a6",
          "min-zoomed-font-size": 5,
        },
      },
      {
        selector: "edge",
        style: {
          width: 1.2,
          "line-color": "#9aa3b2",
          "target-arrow-color": "#9aa3b2",
          "target-arrow-shape": "triangle",
          "curve-style": "bezier",
          "arrow-scale": 0.8,
          label: "data(label)",
          "font-size": LABEL_SIZE,
          color: textColor,
          "text-background-color": background,
          "text-background-opacity": 1,
          "text-background-padding": 2,
          "min-zoomed-font-size": 5,
        },
      },
      {
        selector: ".bent",
        style: {
          "curve-style": "round-segments",
          "segment-weights": "data(weights)",
          "segment-distances": "data(distances)",
          "segment-radii": 20,
          "edge-distances": "node-position",
        },
      },
      { selector: ".transposed", style: { "border-width": 3, "border-color": "#c2410c" } },
      { selector: ".island", style: { "border-width": 3, "border-color": "#8b5cf6" } },
      { selector: ".wrong", style: { "background-color": "#b3261e", color: "#fff" } },
      { selector: ":selected", style: { "border-width": 4, "border-color": "#1d4ed8" } },
    ],
  });
  network.on("tap", "node", (event) => showDetails(event.target.id()));
  // A drag that starts on an operator also moves the network, because on a phone the operators fill the width.
  network.elements().panify();
  const box = network.elements().boundingBox();
  const start = operators.length ? positions.get(String(operators[0].index)) : { x: 0, y: 0 };
  window.graphOfPage = network;
  addControls(network, box, start);
  addSearch(operators);
  addArrowKeys(operators);
}

/** Let arrow keys select the next or the previous operator. */
function addArrowKeys(operators) {
  element("graph").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step || !operators.length) return;
    event.preventDefault();
    const current = operators.findIndex((op) => String(op.index) === selectedId());
    const next = current < 0 ? 0 : Math.min(operators.length - 1, Math.max(0, current + step));
    select(operators[next].index);
  });
}

/**
 * Let the wheel move the network, and let the wheel with Ctrl and the buttons zoom it.
 *
 * ``box``: bounding box of the network. ``start``: position of the first operator.
 */
function addControls(network, box, start) {
  const frame = element("graph"),
    margin = 30;
  const updateScrollbar = () => {
    const { y1, h } = network.extent();
    const top = Math.max(0, (y1 - box.y1) / box.h),
      bottom = Math.min(1, (y1 + h - box.y1) / box.h);
    element("zoom").textContent = `${Math.round(100 * network.zoom())} %`;
    const scrollbar = element("scrollbar");
    scrollbar.style.cssText = `top:${100 * top}%;height:${Math.max(2, 100 * (bottom - top))}%`;
    scrollbar.hidden = bottom - top > 0.99;
  };
  const showStart = () => {
    // The size is readable, even if only the beginning of the network fits.
    const { clientWidth: width, clientHeight: height } = frame;
    const zoom = Math.max(1, Math.min(1.5, (width - margin) / box.w, (height - margin) / box.h));
    const centerX = box.w * zoom < width ? (box.x1 + box.x2) / 2 : start.x;
    const isWholeHeight = box.h * zoom < height;
    const y = isWholeHeight ? (height - zoom * (box.y1 + box.y2)) / 2 : margin - zoom * box.y1;
    network.viewport({ zoom, pan: { x: width / 2 - zoom * centerX, y } });
  };
  const zoomBy = (factor, position) => {
    const center = { x: frame.clientWidth / 2, y: frame.clientHeight / 2 };
    network.zoom({ level: network.zoom() * factor, renderedPosition: position || center });
  };
  const scroll = (event) => {
    event.stopPropagation(); // otherwise cytoscape would zoom
    const pixels = event.deltaMode === 1 ? 16 : 1; // per unit of the deltas, which may be lines
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const { left, top } = frame.getBoundingClientRect();
      const delta = Math.max(-50, Math.min(50, pixels * event.deltaY));
      zoomBy(Math.exp(-delta / 150), { x: event.clientX - left, y: event.clientY - top });
      return;
    }
    const zoom = network.zoom(),
      pan = network.pan();
    const limit = (delta, low, high, size) =>
      delta > 0
        ? Math.min(delta, Math.max(0, high + margin - size))
        : Math.max(delta, Math.min(0, low - margin));
    const dx = limit(pixels * event.deltaX, zoom * box.x1 + pan.x, zoom * box.x2 + pan.x, frame.clientWidth);
    const dy = limit(pixels * event.deltaY, zoom * box.y1 + pan.y, zoom * box.y2 + pan.y, frame.clientHeight);
    if (Math.abs(dx) + Math.abs(dy) < 0.5) return; // at an end of the network, the page scrolls
    event.preventDefault();
    network.panBy({ x: -dx, y: -dy });
  };
  frame.parentElement.addEventListener("wheel", scroll, { capture: true, passive: false });
  network.on("viewport resize", updateScrollbar);
  element("zoom-in").addEventListener("click", () => zoomBy(1.25));
  element("zoom-out").addEventListener("click", () => zoomBy(0.8));
  element("fit").addEventListener("click", () => network.fit(undefined, 10));
  element("start").addEventListener("click", showStart);
  showStart();
  updateScrollbar();
}

/** Operators with the number or label ``text``; if there are none, operators whose code, output or nodes contain it. */
function findOperators(operators, text) {
  const query = text.trim().replace(/\s+/g, " ").toLowerCase();
  if (!query) return [];
  const numbers = (op) => (op.operators || []).map(String);
  const words = (op) =>
    [op.place, op.code, ...(op.codes || []), op.name, ...op.nodes, ...(op.inner || [])]
      .join(" ")
      .toLowerCase();
  if (/^\d+$/.test(query)) {
    const operatorsWithNumber = operators.filter((op) => numbers(op).includes(query));
    if (operatorsWithNumber.length) return operatorsWithNumber;
  }
  const labels = (op) => [`${op.place} ${op.code}`, op.name].map((label) => label.toLowerCase());
  const operatorsWithLabel = operators.filter((op) => labels(op).includes(query));
  if (operatorsWithLabel.length) return operatorsWithLabel;
  return operators.filter((op) => words(op).includes(query));
}

/** Search: typing selects the first match, Enter the next one, Shift+Enter the previous one. */
function addSearch(operators) {
  const field = element("find");
  let matches = [],
    current = 0;
  const message = () => {
    if (!field.value.trim()) return "";
    if (!matches.length) return "no match";
    return `${current + 1} of ${matches.length}${matches.length > 1 ? "; Enter: next" : ""}`;
  };
  const showMatch = () => {
    element("found").textContent = message();
    if (!matches.length) return;
    select(matches[current].index);
    element("panes").scrollIntoView({ block: "nearest" });
  };
  field.addEventListener("input", () => {
    matches = findOperators(operators, field.value);
    current = 0;
    showMatch();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !matches.length) return;
    event.preventDefault();
    current = (current + (event.shiftKey ? matches.length - 1 : 1)) % matches.length;
    showMatch();
  });
}

function selectedId() {
  const node = window.graphOfPage.$("node:selected")[0];
  return node && node.id();
}

/** Select an operator in the network, and show its details. */
function select(index) {
  const network = window.graphOfPage,
    node = network.getElementById(String(index));
  network.$(":selected").unselect();
  if (node.length) {
    const { x1, x2 } = network.extent(),
      box = node.boundingBox(),
      { x } = network.pan();
    node.select();
    network.center(node);
    const isVisible = box.x1 >= x1 && box.x2 <= x2;
    if (isVisible) network.pan({ x, y: network.pan().y }); // move only up or down
  }
  showDetails(index);
}
