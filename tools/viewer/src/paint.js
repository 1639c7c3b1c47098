// paint.js: which colour a block gets: by layer, size, rounding, stream, tag or age; and the legend that says so.
//
// A painter is {entries: [{label, color}], of(blocks, i) -> index into entries}.
import {bytesText, countText} from './util.js';
import {LAYERS} from './state.js';
import {currentTheme, theme} from './theme.js';

const KIB = 1024;
const MIB = KIB * KIB;
const SIZE_STEPS = [4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];
const WASTE_STEPS = [0.001, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5];

export const PAINTERS = {
  size: 'size', layer: 'layer', waste: 'rounding', stream: 'stream', tag: 'tag', age: 'age',
};

// Eight steps of viridis, pale to strong: rises in lightness too, so it reads without colour and on both themes.
const VIRIDIS = ['#fde725', '#a0da39', '#4ac16d', '#1fa187', '#277f8e', '#365c8d', '#46327e', '#440154'];

function ramp() {
  return currentTheme() === 'dark' ? [...VIRIDIS].reverse() : VIRIDIS;
}

const step = (steps, value) => {
  let i = 0;
  while (i < steps.length && value > steps[i]) i++;
  return i;
};

function bySize() {
  const colors = ramp();
  const entries = colors.map((color, i) => ({
    color, label: i < SIZE_STEPS.length ? `≤ ${bytesText(SIZE_STEPS[i])}` : `> ${bytesText(SIZE_STEPS[i - 1])}`,
  }));
  return {entries, of: (blocks, i) => step(SIZE_STEPS, blocks.len[i])};
}

function byWaste() {
  const colors = ramp();
  const entries = colors.map((color, i) => ({
    color,
    label: i === 0 ? 'exact' : i < WASTE_STEPS.length ? `≤ ${100 * WASTE_STEPS[i]} %` : `> ${100 * WASTE_STEPS[i - 1]} %`,
  }));
  return {entries, of: (blocks, i) => step(WASTE_STEPS, (blocks.len[i] - blocks.req[i]) / blocks.len[i])};
}

// byRank: the seven keys with the most bytes have colours of their own.
function byRank(state, keyOf, labelOf) {
  const bytes = new Map();
  const {blocks} = state;
  for (let i = 0; i < blocks.n; i++) {
    const key = keyOf(blocks, i);
    bytes.set(key, (bytes.get(key) ?? 0) + blocks.len[i]);
  }
  const ranked = [...bytes].sort((a, b) => b[1] - a[1]);
  const top = ranked.slice(0, 7).map(([key]) => key);
  const {qualitative} = theme();
  const entries = top.map((key, i) => ({color: qualitative[i], label: labelOf(key)}));
  if (ranked.length > 7) entries.push({color: qualitative[7], label: `${countText(ranked.length - 7)} others`});
  const index = new Map(top.map((key, i) => [key, i]));
  return {entries, of: (b, i) => index.get(keyOf(b, i)) ?? Math.min(7, entries.length - 1)};
}

function byAge(state) {
  const newest = state.event ?? 0;
  const colors = [...ramp()].reverse();
  const label = (i) => (i === 0 ? 'newest' : i === 7 ? 'oldest' : `≤ ${countText(ageStep(i))} events`);
  const ageStep = (i) => 10 ** i;
  return {
    entries: colors.map((color, i) => ({color, label: label(i)})),
    of: (blocks, i) => {
      const age = newest - blocks.born[i];
      let k = 0;
      while (k < 7 && age > ageStep(k)) k++;
      return k;
    },
  };
}

export function painter(name, state) {
  switch (name) {
    case 'size': return bySize();
    case 'waste': return byWaste();
    case 'stream':
      return byRank(state, (b, i) => b.stream[i], (key) => (key < 0 ? 'not known' : `stream ${key}`));
    case 'tag':
      return byRank(state, (b, i) => b.tag[i] || b.name[i], (key) => state.tagText(key) || 'no tag');
    case 'age': return byAge(state);
    default:
      return {entries: LAYERS.map((label, i) => ({label, color: theme().layer[i]})), of: (b, i) => b.layer[i]};
  }
}
