/* dom.js: makes elements, and texts of numbers, times and sizes. A line never breaks between a number and its unit. */

/* Makes an element. A property that begins with "on" is an event listener; true and false set and leave out an attribute.
 * A child is a node or a text. Texts never become HTML. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  for (const child of children.flat()) { /* not append(...): a call cannot have 100,000 arguments */
    if (child !== null && child !== undefined) {
      element.append(child);
    }
  }
  return element;
}

/* Sets the text of a node only if it differs, so that a selection in an unchanged text stays. */
export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

const numbers = new Intl.NumberFormat("en-US");

export function count(n) {
  return numbers.format(n);
}

export function counted(n, noun, plural = `${noun}s`) {
  return `${count(n)} ${n === 1 ? noun : plural}`;
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes, unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)}\u00a0${units[unit]}`;
}

export function seconds(s) {
  if (s < 1) {
    return `${Math.round(1000 * s)}\u00a0ms`;
  }
  return s < 100 ? `${s.toFixed(1)}\u00a0s` : `${Math.round(s / 60)}\u00a0min`;
}

/* How long before `now_ms` the time `then_ms` was; both are Unix times. */
export function ago(then_ms, now_ms) {
  const s = Math.max(0, (now_ms - then_ms) / 1000);
  if (s < 2) {
    return "now";
  }
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [length, name] = units.find(([one]) => s >= one);
  return `${Math.floor(s / length)}\u00a0${name} ago`;
}

export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)}\u00a0%` : "–";
}
