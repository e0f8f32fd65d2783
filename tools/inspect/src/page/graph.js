// The plan as a graph: launches before the layers, groups of equal layers side by side between two rails, launches after them.

const NODE = { width: 212, height: 62, gap: 54, inputs: 166, skips: 100 };
const COLUMN = NODE.inputs + NODE.width + NODE.skips;

function drawGraph() {
  const { nodes, edges, prologue, groups, epilogue } = data.graph;
  const parts = [];
  const place = new Map();
  const rail = 64;
  const columns = Math.max(1, groups.length);
  const width = rail + columns * COLUMN + 12;
  const middle = rail + ((columns - 1) * COLUMN) / 2 + NODE.inputs + NODE.width / 2;
  let y = 10;

  const column = (list, center, top) => {
    for (const node of list) {
      place.set(node, { x: center - NODE.width / 2, y: top, center });
      top += NODE.height + NODE.gap;
    }
    return top - NODE.gap;
  };
  if (prologue.length) y = column(prologue, middle, y) + NODE.gap;
  const top = y;
  const bodies = groups.map((group, at) => {
    const center = rail + at * COLUMN + NODE.inputs + NODE.width / 2;
    return { group, center, left: rail + at * COLUMN, bottom: column(group.nodes, center, top + 62) };
  });
  const bottom = groups.length ? Math.max(...bodies.map((body) => body.bottom)) + 44 : y - NODE.gap;
  if (epilogue.length) y = column(epilogue, middle, bottom + (groups.length ? NODE.gap : 0));
  const height = (epilogue.length ? y : bottom) + 14;

  const label = (x, at, text, anchor = "start") => s("text", { x, y: at, class: "edge-label", "text-anchor": anchor }, text);
  const carried = (list) => [...new Set(list.map((it) => it.buffer))].map((name) => `${name} ${bytes(list.find((it) => it.buffer === name).bytes)}`);
  const style = (edge) => `edge ${edge?.order ?? "data"}`;
  const between = (from, to, leaves) => edges.find((edge) => edge.from === from && edge.to === to && edge.leaves_layer === leaves);

  for (const { group, left, bottom: end, center } of bodies) {
    const list = ranges(group.layers);
    parts.push(s("rect", { x: left + 6, y: top + 18, width: COLUMN - 12, height: end - top + 8, rx: 10, class: "group" }));
    parts.push(s("text", { x: left + 20, y: top + 40, class: "group-title" }, `${group.layers.length} layer${group.layers.length > 1 ? "s" : ""}`),
      s("text", { x: left + 20, y: top + 56, class: "group-layers" }, clip(list, 30), s("title", {}, list)));
    const first = place.get(group.nodes[0]);
    const last = place.get(group.nodes[group.nodes.length - 1]);
    const entering = edges.find((edge) => edge.to === group.nodes[0] && edge.leaves_layer && edge.order);
    const leaving = edges.find((edge) => edge.from === group.nodes[group.nodes.length - 1] && edge.leaves_layer && edge.order);
    parts.push(arrow(`M${center} ${top} V${first.y}`, style(entering)));
    parts.push(s("path", { d: `M${center} ${last.y + NODE.height} V${bottom}`, class: style(leaving) }));
  }
  if (groups.length) {
    const [left, right] = [bodies[0].center, bodies[bodies.length - 1].center];
    const rails = [middle, left, right];
    const lines = [Math.min(...rails), Math.max(...rails)];
    const entry = edges.find((edge) => prologue.includes(edge.from) && edge.leaves_layer && edge.order);
    const turns = edges.filter((edge) => edge.leaves_layer && edge.order && place.has(edge.from) && groups.some((group) => group.nodes.includes(edge.from)) && groups.some((group) => group.nodes.includes(edge.to)));
    const exit = edges.find((edge) => epilogue.includes(edge.to) && edge.leaves_layer && edge.order);
    const again = turns.reduce((sum, edge) => sum + edge.count, 0);
    const kind = style(turns[0] ?? entry);
    for (const at of [top, bottom]) parts.push(s("path", { d: `M${lines[0]} ${at} H${lines[1]}`, class: kind }));
    if (again) {
      parts.push(arrow(`M${lines[0]} ${bottom} H${34} a12 12 0 0 1 -12 -12 V${top + 12} a12 12 0 0 1 12 -12 H${lines[0] - 2}`, kind));
      const carrying = carried(turns[0].data).map((text) => ` · ${text}`).join("");
      parts.push(s("text", { class: "edge-label", "text-anchor": "middle", transform: `translate(40 ${(top + bottom) / 2}) rotate(-90)` }, `next layer × ${again}${carrying}`));
    }
    if (entry) {
      const from = place.get(prologue[prologue.length - 1]);
      parts.push(s("path", { d: `M${middle} ${from.y + NODE.height} V${top}`, class: style(entry) }), label(middle + 8, from.y + NODE.height + 22, carried(entry.data).join(", ")));
    }
    if (exit) {
      const to = place.get(epilogue[0]);
      parts.push(arrow(`M${middle} ${bottom} V${to.y}`, style(exit)), label(middle + 8, to.y - 12, carried(exit.data).join(", ")));
    }
  }
  for (const list of [prologue, ...groups.map((group) => group.nodes), epilogue]) {
    list.slice(1).forEach((to, at) => {
      const edge = between(list[at], to, list === prologue || list === epilogue);
      const [from, end] = [place.get(list[at]), place.get(to)];
      parts.push(arrow(`M${from.center} ${from.y + NODE.height} V${end.y}`, style(edge)));
      if (edge) carried(edge.data).slice(0, 2).forEach((text, line, all) => parts.push(label(from.center + 8, from.y + NODE.height + 28 + 15 * (line - (all.length - 1) / 2), text)));
    });
  }
  for (const { group, center } of bodies) parts.push(...skips(group, center, top, place, edges, carried));
  nodes.forEach((node, index) => place.has(index) && parts.push(drawNode(node, place.get(index))));

  const drawing = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The plan's launches and what they hand on" },
    s("defs", {}, ["full", "programmatic", "data"].map((kind) => s("marker", { id: `tip-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0.6 L7.4 4 L0 7.4 z", class: `tip ${kind}` })))),
    parts);
  return h("figure", { class: "graph" }, h("div", { class: "canvas-graph", tabindex: "0", role: "region", "aria-label": "The plan as a graph" }, drawing),
    h("figcaption", {}, legend("programmatic", "may start before the launch ahead is over"), legend("full", "starts when it is over"), legend("data", "read later"), h("span", {}, "Left of a launch: what it reads that no launch of the step wrote.")));
}

function legend(kind, text) {
  return h("span", {}, s("svg", { width: 34, height: 8, "aria-hidden": "true" }, s("path", { d: "M1 4 H33", class: `edge ${kind}` })), text);
}

function arrow(d, kind) {
  return s("path", { d, class: kind, "marker-end": `url(#tip-${kind.split(" ")[1]})` });
}

/** Edges that skip launches, to the right of a group of layers. */
function skips(group, center, top, place, edges, carried) {
  const parts = [];
  const taken = [];
  const side = center + NODE.width / 2;
  const seen = new Set();
  for (const edge of edges) {
    if (edge.order || !group.nodes.includes(edge.to)) continue;
    const within = !edge.leaves_layer;
    // Private data of a launch, such as counters, is not shown.
    if (!within && data.graph.nodes[edge.from].label === data.graph.nodes[edge.to].label) continue;
    const text = carried(edge.data).join(", ");
    if (within ? !group.nodes.includes(edge.from) : seen.has(`${edge.to} ${text}`)) continue;
    seen.add(`${edge.to} ${text}`);
    const to = place.get(edge.to).y + NODE.height / 2 + (within ? 10 : -10);
    const from = within ? place.get(edge.from).y + NODE.height / 2 + 10 : top;
    let lane = 0;
    while (taken.some((it) => it.lane === lane && it.from < to && from < it.to)) lane++;
    taken.push({ lane, from, to });
    const x = side + 20 + 26 * lane;
    const start = within ? `M${side} ${from} H${x - 8} a8 8 0 0 1 8 8` : `M${center} ${top} H${x - 8} a8 8 0 0 1 8 8`;
    parts.push(arrow(`${start} V${to - 8} a8 8 0 0 1 -8 8 H${side + 1}`, "edge data"));
    parts.push(s("text", { class: "edge-label", x: x + 6, y: (Math.max(from, top + 60) + to) / 2 }, text.split(" ")[0], s("tspan", { x: x + 6, dy: 14 }, text.split(" ").slice(1).join(" "))));
  }
  return parts;
}

function drawNode(node, { x, y }) {
  const kernel = data.kernels[node.kernel];
  const time = kernel.roofline[gpu().name];
  const parts = inputs(node).map(({ text, kind, bytes: size }, at, all) => {
    const top = y + NODE.height / 2 + (at - all.length / 2) * 20 + 1;
    return [
      s("path", { d: `M${x - 16} ${top + 9} H${x - 1}`, class: "edge data", "marker-end": `url(#tip-data)` }),
      s("rect", { x: x - NODE.inputs + 20, y: top, width: NODE.inputs - 36, height: 17, rx: 8.5, class: `pill ${kind}` }),
      s("text", { x: x - NODE.inputs / 2 + 2, y: top + 12.5, class: "pill-text", "text-anchor": "middle" }, clip(text, 13), " ", bytes(size), s("title", {}, `${text}: ${bytes(size)}`)),
    ];
  });
  const outputs = node.outputs.filter((it) => !node.inputs.some((other) => other.buffer === it.buffer)).map((it) => it.buffer);
  if (outputs.length) parts.push(s("text", { x: x + NODE.width + 8, y: y + NODE.height / 2 + 4, class: "edge-label" }, `→ ${outputs.join(", ")}`));
  return s("g", {}, parts, s("a", { href: `#k/${kernel.name}`, class: "node", "data-kernel": kernel.name, "aria-label": `${node.label}, ${node.launches} launches: open its kernel` },
    s("title", {}, kernel.name),
    s("rect", { x, y, width: NODE.width, height: NODE.height, rx: 8 }),
    s("text", { x: x + 12, y: y + 20, class: "node-title" }, node.label),
    s("text", { x: x + NODE.width - 12, y: y + 20, class: "node-side", "text-anchor": "end" }, node.launches > 1 ? `× ${node.launches}` : ""),
    s("text", { x: x + 12, y: y + 37, class: "node-text" }, `${gridText(kernel.grid)} CTA${ctasOf(kernel.grid) === 1 ? "" : "s"} × ${kernel.threads} threads`),
    s("text", { x: x + 12, y: y + 52, class: "node-text" }, `${bytes(kernel.bytes)} · ${seconds(time)}`)));
}

/** Data that a launch reads from outside of the step: weights, the cache, and small buffers as one. */
function inputs(node) {
  const list = [];
  for (const kind of ["weights", "kv_cache"]) {
    const own = node.inputs.filter((it) => it.kind === kind);
    if (own.length) list.push({ kind, text: own.map((it) => (kind === "weights" ? "weights" : it.buffer)).join(", "), bytes: own.reduce((sum, it) => sum + it.bytes, 0) });
  }
  const rest = node.inputs.filter((it) => !["weights", "kv_cache", "activation", "counters"].includes(it.kind));
  if (rest.length) list.push({ kind: "small", text: rest.map((it) => it.buffer).join(", "), bytes: rest.reduce((sum, it) => sum + it.bytes, 0) });
  return list;
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** `0–3, 6, 9–12`. */
function ranges(list) {
  const parts = [];
  for (const n of list) {
    const last = parts[parts.length - 1];
    if (last && last[1] === n - 1) last[1] = n;
    else parts.push([n, n]);
  }
  return parts.map(([a, b]) => (a === b ? a : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ");
}
