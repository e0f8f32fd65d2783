// The data, and functions that format it.

const data = JSON.parse(document.getElementById("data").textContent);

/** An element: attributes, `on…` listeners, and children. */
function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const number = (n) => n.toLocaleString("en-US").replaceAll(",", "\u202f");

function scaled(n, base, units, digits = 3) {
  let unit = 0;
  while (n >= base && unit < units.length - 1) [n, unit] = [n / base, unit + 1];
  const text = unit === 0 && Number.isInteger(n) ? String(n) : n >= 100 ? n.toFixed(0) : n.toPrecision(digits);
  return `${text}\u00a0${units[unit]}`.trim();
}

const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const amount = (n) => scaled(n, 1000, ["", "k", "M", "G", "T", "P"]);
const seconds = (n) => (n === 0 ? "0" : scaled(n * 1e9, 1000, ["ns", "µs", "ms", "s"]));
const percent = (n) => (n >= 0.0995 ? `${(100 * n).toFixed(0)} %` : n >= 0.001 ? `${(100 * n).toFixed(1)} %` : "< 0.1 %");
const gridText = (grid) => grid.filter((n, at) => at === 0 || n > 1 || grid.slice(at).some((m) => m > 1)).join("×");

const ctas = (n) => `${number(n)} CTA${n === 1 ? "" : "s"}`;
const ctasOf = (grid) => grid.reduce((a, b) => a * b);

const shared = (kernel) => kernel.dynamic_shared + (kernel.ptxas?.static_shared ?? kernel.report.static_shared);
const spills = (kernel) => (kernel.ptxas ? kernel.ptxas.spill_stores + kernel.ptxas.spill_loads : null);
const units = { int8: "INT8 tensor cores", f16: "FP16 tensor cores", f32: "FP32" };

/** Title of a kernel: its role; kernels of the same role are distinguished by their weights. */
function title(kernel) {
  const roles = kernel.roles.join(", ");
  const rivals = data.kernels.filter((other) => other !== kernel && other.roles.join(", ") === roles);
  if (rivals.length === 0) return roles;
  const types = (of) => [...new Set((of.constants.segments ?? []).map((segment) => segment.ty.replace("__", "_").toUpperCase()))].join("+");
  const own = types(kernel);
  const differ = own && rivals.every((other) => types(other) !== own);
  return `${roles} · ${differ ? own : data.kernels.indexOf(kernel)}`;
}

/** The selected GPU, in the browser's local storage. */
const memory = {
  get(key) {
    try { return localStorage.getItem(`bespoke.${key}`); } catch { return null; }
  },
  set(key, value) {
    try { localStorage.setItem(`bespoke.${key}`, value); } catch { /* Local storage may be disabled. */ }
  },
};
