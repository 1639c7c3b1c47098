// theme.js: the colours that canvases draw with, read from the page's style sheet, so that both have one list.

const NAMES = [
  'ink', 'muted', 'faint', 'line', 'panel', 'page', 'lane', 'accent', 'focus', 'free', 'live', 'gaps', 'pending', 'parked',
  'spare', 'others', 'retiring', 'transit', 'broken', 'slab', 'mid', 'buddy', 'region', 'q0', 'q1', 'q2', 'q3', 'q4', 'q5', 'q6', 'q7',
];

let colors = null;

export function theme() {
  if (colors) return colors;
  const style = getComputedStyle(document.documentElement);
  colors = {font: style.getPropertyValue('--font').trim(), mono: style.getPropertyValue('--mono').trim()};
  for (const name of NAMES) colors[name] = style.getPropertyValue(`--${name}`).trim();
  colors.state = [colors.live, colors.parked, colors.retiring, colors.transit, colors.broken, colors.pending];
  colors.layer = [colors.slab, colors.mid, colors.buddy, colors.region];
  colors.qualitative = [colors.q0, colors.q1, colors.q2, colors.q3, colors.q4, colors.q5, colors.q6, colors.q7];
  return colors;
}

const patterns = new Map();

// hatch: a fill of diagonal lines, so that states can be told apart without colour.
export function hatch(context, color, back) {
  const key = `${color}/${back}/${window.devicePixelRatio}`;
  let tile = patterns.get(key);
  if (!tile) {
    tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const t = tile.getContext('2d');
    t.fillStyle = back;
    t.fillRect(0, 0, 6, 6);
    t.strokeStyle = color;
    t.lineWidth = 1.6;
    for (const shift of [-6, 0, 6]) {
      t.beginPath();
      t.moveTo(shift, 6);
      t.lineTo(shift + 6, 0);
      t.stroke();
    }
    patterns.set(key, tile);
  }
  return context.createPattern(tile, 'repeat');
}

export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export function setTheme(name) {
  document.documentElement.dataset.theme = name;
  colors = null;
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  colors = null;
});
