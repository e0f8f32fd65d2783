// A kernel's warps as a picture: which copy, which multiply, and the mbarriers by which they wait for each other.

const WARPS = { role: 210, ring: 190, pill: 120, gap: 56, line: 16 };

/** Roles that copy on the left, the others on the right, and between them the rings whose phases hand over data or room. */
function warpsCard(kernel) {
  const { roles, rings } = kernel.warps;
  const used = rings.map((ring, index) => ({ ring, index, from: completing(roles, index), to: waiting(roles, index) })).filter((it) => it.from.length && it.to.length);
  const meets = (role) => used.some((it) => it.from.includes(role) || it.to.includes(role));
  const copies = (role) => roles[role].copies.length > 0;
  const sides = [[], []];
  roles.forEach((_, role) => meets(role) && sides[copies(role) ? 0 : 1].push(role));
  // Without copies, the roles that complete the first ring are on the left.
  if (!sides[0].length) for (const role of used[0].from) sides[0].push(sides[1].splice(sides[1].indexOf(role), 1)[0]);
  const left = WARPS.pill + 34;
  const middle = left + WARPS.role + WARPS.gap;
  const right = middle + WARPS.ring + WARPS.gap;
  const width = right + WARPS.role + WARPS.pill + 34;

  const texts = new Map(sides.flatMap((side, at) => side.map((role) => [role, roleTexts(roles[role], at === 0)])));
  const sources = (role) => (sides[0].includes(role) ? [...new Set(roles[role].copies.map((it) => it.from ?? "shared memory"))] : []);
  const targets = (role) => (sides[1].includes(role) ? [...new Set(roles[role].stores.map((it) => it.to))] : []);
  const tall = (role) => Math.max(30 + WARPS.line * texts.get(role).length, 20 * Math.max(sources(role).length, targets(role).length));
  const ringHeight = 50;
  const total = (list, height) => list.reduce((sum, it) => sum + height(it) + 14, -14);
  const height = Math.max(...sides.map((side) => total(side, tall)), total(used, () => ringHeight)) + 20;
  const place = new Map();
  const column = (list, x, height_, key) => {
    let y = (height - total(list, height_)) / 2;
    for (const it of list) {
      place.set(key(it), { x, y, height: height_(it) });
      y += height_(it) + 14;
    }
  };
  column(sides[0], left, tall, (role) => `role ${role}`);
  column(sides[1], right, tall, (role) => `role ${role}`);
  column(used, middle, () => ringHeight, (it) => `ring ${it.index}`);

  // Ends of arrows at a box are spread along its side, in the order of the rings.
  const ends = new Map();
  for (const it of used) {
    for (const role of new Set([...it.from, ...it.to])) ends.set(role, [...(ends.get(role) ?? []), it.index]);
  }
  const end = (role, ring) => {
    const box = place.get(`role ${role}`);
    const list = ends.get(role);
    return box.y + (box.height * (list.indexOf(ring) + 1)) / (list.length + 1);
  };
  const parts = [];
  for (const it of used) {
    const ring = place.get(`ring ${it.index}`);
    const line = (role, leaves) => {
      const isLeft = place.get(`role ${role}`).x === left;
      const outer = isLeft ? left + WARPS.role : right;
      const inner = isLeft ? middle : middle + WARPS.ring;
      // A role that completes phases and waits for them has two arrows, side by side.
      const apart = it.from.includes(role) && it.to.includes(role) ? (leaves ? -6 : 6) : 0;
      const [atRole, atRing] = [end(role, it.index) + apart, ring.y + ringHeight / 2 + apart];
      const [x, y, toX, toY] = leaves ? [outer, atRole, inner, atRing] : [inner, atRing, outer, atRole];
      const bend = (x + toX) / 2;
      return arrow(`M${x} ${y} C${bend} ${y} ${bend} ${toY} ${toX} ${toY}`, "edge hand");
    };
    parts.push(it.from.map((role) => line(role, true)), it.to.map((role) => line(role, false)), drawRing(it, ring, ringHeight, roles));
  }
  for (const role of sides.flat()) {
    const box = place.get(`role ${role}`);
    parts.push(drawRole(kernel, roles[role], texts.get(role), box));
    parts.push(outside(sources(role), box, left - WARPS.pill - 16, left - 1, true));
    parts.push(outside(targets(role), box, right + WARPS.role + 16, right + WARPS.role + 1, false));
  }
  const drawing = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The roles of the warps, and the mbarriers between them" },
    s("defs", {}, s("marker", { id: "tip-hand", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0.6 L7.4 4 L0 7.4 z", class: "tip" }))), parts);
  const rest = roles.filter((_, role) => !meets(role));
  const about = "From the IR: what each thread of a CTA may reach. An arrow to a ring completes phases of its mbarriers; an arrow from a ring is a wait for them.";
  return h("section", { class: "card picture" }, h("h2", {}, "Warps"), h("p", { class: "dim" }, about),
    h("div", { class: "canvas-graph", tabindex: "0", role: "region", "aria-label": "The roles of the warps" }, drawing),
    rest.length ? h("p", { class: "dim" }, `Not in the picture: ${rest.map((role) => warpsText(role)).join(", ")}, which use no ring.`) : null);
}

const completing = (roles, ring) => roles.flatMap((role, index) => (role.copies.some((it) => it.ring === ring) || role.arrives.some((it) => it.ring === ring) ? [index] : []));
const waiting = (roles, ring) => roles.flatMap((role, index) => (role.waits.some((it) => it.ring === ring) ? [index] : []));
const warpsText = (role) => `warp${role.warps.length > 1 ? "s" : ""} ${ranges(role.warps)}`;
const threadsText = (lanes) => (lanes === 1 ? "one thread" : lanes === 32 ? "all threads" : `${lanes} threads a warp`);

/** Lines of a role's box, each with the place of its first instruction. Those on the right have their writes beside them. */
function roleTexts(role, isLeft) {
  const count = role.copies.reduce((sum, it) => sum + it.count, 0);
  const kind = `${role.copies.every((it) => it.tiles) ? "tile load" : "bulk copy"}`;
  const kinds = count === 1 ? kind : kind.replace("copy", "copie") + "s";
  const copies = count ? [{ text: `${threadsText(Math.max(...role.copies.map((it) => it.lanes)))}: ${number(count)} ${kinds}`, place: role.copies[0].place }] : [];
  const products = role.products.map((it) => ({ text: `${number(it.count)} ${it.instruction}`, place: it.place }));
  const registers = role.registers ? [{ text: `${role.registers} registers a thread`, place: null }] : [];
  const writes = isLeft && role.stores.length ? [{ text: clip(`writes ${[...new Set(role.stores.map((it) => it.to))].join(", ")}`, 32), place: role.stores[0].place }] : [];
  return [...copies, ...products, ...writes, ...registers];
}

/** Link to a Rust line in the kernel's view. */
function lineLink(kernel, place) {
  const [file, line] = data.places.places[place];
  return `#k/${kernel.name}/source:${data.places.files[file]}:${line}`;
}

function drawRole(kernel, role, texts, { x, y, height }) {
  return s("g", { class: "role" },
    s("rect", { x, y, width: WARPS.role, height, rx: 8 }),
    s("text", { x: x + 12, y: y + 20, class: "node-title" }, clip(warpsText(role), 24)),
    texts.map((it, at) => {
      const text = s("text", { x: x + 12, y: y + 38 + WARPS.line * at, class: "node-text" }, it.text);
      return it.place === null ? text : s("a", { href: lineLink(kernel, it.place), "aria-label": `${it.text}: open its line` }, text);
    }));
}

function drawRing({ ring, index }, { x, y }, height, roles) {
  const carries = roles.some((role) => role.copies.some((it) => it.ring === index));
  const what = carries ? (ring.bytes ? `${bytes(ring.bytes)} each` : "copies") : `${ring.arrivals} arrival${ring.arrivals === 1 ? "" : "s"}`;
  const note = `${ring.stages} stage${ring.stages === 1 ? "" : "s"} · ${what}`;
  const shown = Math.min(ring.stages, 8);
  const cell = (WARPS.ring - 24) / shown;
  return s("g", { class: carries ? "ring full" : "ring" },
    s("rect", { x, y, width: WARPS.ring, height, rx: 8 }),
    Array.from({ length: shown }, (_, at) => s("rect", { x: x + 12 + at * cell + 1, y: y + 29, width: cell - 2, height: 11, rx: 3, class: "stage" })),
    s("text", { x: x + 12, y: y + 20, class: "node-text" }, note));
}

/** What a role reads or writes in global memory, beside its box. */
function outside(names, box, x, end, enters) {
  return names.map((name, at) => {
    const top = box.y + box.height / 2 + (at - names.length / 2) * 20 + 1;
    const line = enters ? `M${x + WARPS.pill} ${top + 9} H${end}` : `M${end} ${top + 9} H${x - 1}`;
    return [arrow(line, "edge hand"), s("rect", { x, y: top, width: WARPS.pill, height: 17, rx: 8.5, class: "pill" }), s("text", { x: x + WARPS.pill / 2, y: top + 12.5, class: "pill-text", "text-anchor": "middle" }, clip(name, 16))];
  });
}
