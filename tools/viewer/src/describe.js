// describe.js: things of a pool as lines of text: [name, value] pairs for tooltips and the panel of details.
import {LAYERS, STATES} from './state.js';
import {bytesText, countText, exactBytes, shareText, timeText} from './util.js';

const STATE_MEANS = {
  mapped: 'mapped', parked: 'parked: no live block touches it', retiring: 'retiring: goes once GPU work is done',
  pending: 'parked, but GPU work may still touch it',
  in_transit: 'in transit: a driver call is under way', broken: 'broken: could not be mapped or unmapped',
};

export const fenceText = (mask) => (mask == null ? null : mask === '0x0' ? 'nobody can still touch it' : `streams ${mask} may still touch it`);

export function blockLines(app, index) {
  const {state, page} = app;
  const {blocks} = state;
  const slack = blocks.len[index] - blocks.req[index];
  const lines = [
    ['title', bytesText(blocks.len[index])],
    ['address', state.space.addressText(blocks.off[index])],
    ['asked for', exactBytes(blocks.req[index])],
    ['held', exactBytes(blocks.len[index])],
    ['rounding', slack === 0 ? 'none' : `${bytesText(slack)} (${shareText(slack, blocks.len[index])})`],
    ['layer', LAYERS[blocks.layer[index]]],
  ];
  if (blocks.stream[index] >= 0) lines.push(['stream', streamText(app, blocks.stream[index])]);
  const tag = state.tagText(blocks.tag[index]);
  if (tag) lines.push(['tag', tag]);
  const name = state.tagText(blocks.name[index]);
  if (name) lines.push(['name', name]);
  if (blocks.born[index] >= 0 && page.history) {
    const event = blocks.born[index];
    const {history} = page;
    lines.push(['allocated', event < history.initial ? 'before the log begins'
      : `event ${countText(event - history.initial + 1)}, at ${timeText(history.time[event] - history.time[0])}`]);
  }
  return lines;
}

export function streamText(app, stream) {
  const {documents, states, history} = app.page;
  const known = documents[Math.max(0, states.indexOf(app.state))]?.streams?.find((one) => one.index === stream);
  const handle = known?.handle ?? history?.head.streams?.[stream];
  return handle === '0x0' ? `${stream} (default)` : handle ? `${stream} (${handle})` : String(stream);
}

export function mappingLines(app, index) {
  const {state} = app;
  const {mappings} = state;
  const name = STATES[mappings.state[index]];
  const lines = [
    ['title', `chunk ${mappings.chunk[index]}`],
    ['address', state.space.addressText(mappings.off[index])],
    ['size', exactBytes(mappings.len[index])],
    ['state', STATE_MEANS[name]],
    ['live in it', `${countText(mappings.live[index])} blocks, ${bytesText(mappings.liveBytes[index])} (${shareText(mappings.liveBytes[index], mappings.len[index])})`],
  ];
  const fence = fenceText(mappings.streams[index]);
  if (fence && name !== 'mapped') lines.push(['fence', fence]);
  const twins = mappingsOfChunk(state, mappings.chunk[index]).filter((i) => i !== index);
  if (twins.length > 0) lines.push(['also at', twins.map((i) => state.space.addressText(mappings.off[i])).join(', ')]);
  return lines;
}

export function mappingsOfChunk(state, chunk) {
  const found = [];
  for (let i = 0; i < state.mappings.n; i++) if (state.mappings.chunk[i] === chunk) found.push(i);
  return found;
}

export function areaLines(state, area) {
  const lines = [
    ['title', `${area.layer} ${area.what}`],
    ['address', state.space.addressText(area.off)],
    ['size', exactBytes(area.len)],
  ];
  if (area.what === 'free' && area.streams !== '0x0') lines.push(['fence', fenceText(area.streams)]);
  return lines;
}

// gapLines: a break of the axis, or a place where nothing lies.
export function gapLines(state, what) {
  if (what.gap) {
    return [['title', `${bytesText(what.to - what.from)} not mapped`], ['from', state.space.addressText(what.from)],
            ['to', state.space.addressText(what.to)], ['note', 'reserved addresses without memory, collapsed']];
  }
  const place = Math.floor(what.place);
  const mapping = state.mappingAt(place);
  return [
    ['title', what.lane === 'blocks' ? 'no live block' : what.lane === 'back' ? 'not mapped' : 'nothing'],
    ['address', state.space.addressText(place)],
    ['backing', mapping < 0 ? 'not mapped' : STATE_MEANS[STATES[state.mappings.state[mapping]]]],
  ];
}
