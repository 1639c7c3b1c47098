// util.js: sizes, numbers and times as text, and elements made without HTML. Nothing here ever parses markup: text from
// a snapshot (names, tags, paths) reaches the page as text nodes and attributes only.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

// bytesText: three digits that count, exact multiples without a fraction: "512 B", "1.25 MiB", "80 GiB".
export function bytesText(bytes) {
  if (bytes == null || Number.isNaN(bytes)) return '–';
  if (bytes < 0) return `−${bytesText(-bytes)}`;
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  if (unit > 0 && value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = Number.isInteger(value) ? 0 : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

// bytesSigned: a difference, with its sign always shown.
export const bytesSigned = (bytes) => (bytes > 0 ? '+' : '') + bytesText(bytes);

export const countText = (n) => (n == null ? '–' : Math.round(n).toLocaleString('en-US').replace(/,/g, '\u202f'));
export const countSigned = (n) => (n === 0 ? '±0' : n > 0 ? `+${countText(n)}` : `−${countText(-n)}`);
export const exactBytes = (n) => `${countText(n)} bytes`;

// shareText: a share that is not 0 never reads as 0.
export function shareText(part, whole) {
  if (!whole) return '–';
  const percent = (100 * part) / whole;
  if (part > 0 && percent < 0.01) return '< 0.01 %';
  return `${percent.toFixed(percent < 1 && percent > 0 ? 2 : 1)} %`;
}

export const hex = (address) => `0x${address.toString(16)}`;

// timeText: microseconds from the start of the log.
export function timeText(us) {
  const sign = us < 0 ? '−' : '';
  const t = Math.abs(us);
  if (t < 1000) return `${sign}${t.toFixed(t < 10 ? 2 : 0)} µs`;
  if (t < 1e6) return `${sign}${(t / 1e3).toFixed(t < 1e4 ? 2 : 1)} ms`;
  if (t < 120e6) return `${sign}${(t / 1e6).toFixed(t < 1e7 ? 3 : 2)} s`;
  const seconds = Math.floor(t / 1e6);
  const pad = (n) => String(n).padStart(2, '0');
  return `${sign}${Math.floor(seconds / 3600)}:${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}`;
}

// parseSize: "64 MiB", "64m", "4096"; NaN for anything else.
export function parseSize(text) {
  const match = /^\s*([0-9]+(?:\.[0-9]+)?)\s*(b|[kmgtp]i?b?)?\s*$/i.exec(text);
  if (!match) return NaN;
  const power = match[2] ? 'bkmgtp'.indexOf(match[2][0].toLowerCase()) : 0;
  return Math.round(Number(match[1]) * 1024 ** power);
}

// h makes an element: h('div.card', {title: 'x'}, 'text', h('b', 'bold')). `on...` members are listeners.
export function h(name, ...rest) {
  const [tag, ...classes] = name.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  for (const part of rest) add(element, part);
  return element;
}

function add(element, part) {
  if (part == null || part === false) return;
  if (Array.isArray(part)) {
    for (const one of part) add(element, one);
  } else if (part instanceof Node) {
    element.append(part);
  } else if (typeof part === 'object') {
    for (const [key, value] of Object.entries(part)) set(element, key, value);
  } else {
    element.append(document.createTextNode(String(part)));
  }
}

function set(element, key, value) {
  if (value == null || value === false) return;
  if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
  else if (key === 'style') for (const [name, text] of Object.entries(value)) element.style.setProperty(name, text);
  else element.setAttribute(key, value === true ? '' : String(value));
}

export function replace(element, ...children) {
  element.replaceChildren();
  for (const child of children) add(element, child);
  return element;
}

// lowerBound: the first index in [0, n) whose value is not below `value`; n where there is none.
export function lowerBound(array, n, value) {
  let low = 0;
  let high = n;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// lastAtOrBefore: the last index whose value is at most `value`; -1 where there is none.
export function lastAtOrBefore(array, n, value) {
  let low = 0;
  let high = n;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// fitCanvas sizes a canvas for the screen's pixels and returns its context, scaled so that 1 is one CSS pixel.
export function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * ratio));
  const ht = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== ht) {
    canvas.width = w;
    canvas.height = ht;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// saveText hands a text to the person as a file; it never leaves the machine.
export function saveText(name, text, type = 'text/plain') {
  const url = URL.createObjectURL(new Blob([text], {type}));
  const link = h('a', {href: url, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export const csvCell = (value) => {
  const text = String(value ?? '');
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};
