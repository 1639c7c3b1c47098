// search.js: the box at the top: an address finds its owner, text finds tags, a size finds blocks of that size.
import {bytesText, countText, h, parseSize, replace} from './util.js';

const MOST = 12;

export class Search {
  constructor(app) {
    this.app = app;
    this.input = h('input', {type: 'search', id: 'search', placeholder: 'address, tag or size   ( / )', autocomplete: 'off', spellcheck: 'false', 'aria-label': 'search by address, tag or size',
      oninput: () => this.changed(), onkeydown: (event) => this.key(event), onfocus: () => this.changed()});
    this.list = h('ul.results', {id: 'search-results', hidden: true});
    this.element = h('div.search', this.input, this.list);
    document.addEventListener('pointerdown', (event) => {
      if (!this.element.contains(event.target)) this.close();
    });
  }

  changed() {
    this.found = this.find(this.input.value.trim());
    this.at = 0;
    this.draw();
  }

  // find: [{text, quiet, go}]
  find(text) {
    if (text === '') return [];
    const address = parseAddress(text);
    if (address !== null) return this.byAddress(address);
    const size = parseSize(text);
    if (size > 0) return this.bySize(size);
    return this.byTag(text.toLowerCase());
  }

  byAddress(address) {
    const {app} = this;
    const {state} = app;
    const place = state.space.placeOf(address);
    if (place < 0) return [{text: `0x${address.toString(16)} lies in no range of this pool`, none: true}];
    const block = state.blockAt(place);
    const {blocks} = state;
    if (block >= 0) {
      const into = place - blocks.off[block];
      return [{text: `${into === 0 ? 'start of a' : `${countText(into)} bytes into a`} block of ${bytesText(blocks.len[block])}`, quiet: state.labelOf(block) || state.space.addressText(blocks.off[block]),
        go: () => app.go({lane: 'blocks', off: blocks.off[block], len: blocks.len[block]})}];
    }
    const mapped = state.mappingAt(place) >= 0;
    return [{text: `no live block; ${mapped ? 'mapped' : 'not mapped'}`, quiet: state.space.addressText(place), go: () => app.go({lane: 'place', off: place, len: 1})}];
  }

  bySize(size) {
    const {blocks, space} = this.app.state;
    const found = [];
    let count = 0;
    for (let i = 0; i < blocks.n; i++) {
      if (blocks.len[i] !== size && blocks.req[i] !== size) continue;
      count++;
      if (found.length < MOST) found.push(this.blockResult(i, space));
    }
    if (count === 0) return [{text: `no live block of ${bytesText(size)}`, none: true}];
    if (count > MOST) found.push({text: `${countText(count - MOST)} more`, none: true});
    return found;
  }

  blockResult(i, space) {
    const {app} = this;
    const {blocks} = app.state;
    return {text: `block of ${bytesText(blocks.len[i])}`, quiet: `${app.state.labelOf(i)} ${space.addressText(blocks.off[i])}`.trim(),
            go: () => app.go({lane: 'blocks', off: blocks.off[i], len: blocks.len[i]})};
  }

  byTag(text) {
    const {state} = this.app;
    const {blocks, strings} = state;
    const matching = new Set(strings.map((one, i) => [one, i]).filter(([one]) => one.toLowerCase().includes(text)).map(([, i]) => i));
    matching.delete(0);
    const found = [];
    let count = 0;
    for (let i = 0; i < blocks.n && matching.size > 0; i++) {
      if (!matching.has(blocks.tag[i]) && !matching.has(blocks.name[i])) continue;
      count++;
      if (found.length < MOST) found.push(this.blockResult(i, state.space));
    }
    if (count > MOST) found.push({text: `${countText(count - MOST)} more blocks`, none: true});
    if (count === 0) return [{text: matching.size > 0 ? 'no live block with that tag now' : `no tag holds “${text}”`, none: true}];
    return found;
  }

  draw() {
    this.list.hidden = this.found.length === 0;
    replace(this.list, this.found.map((one, i) => h('li', {class: `${one.none ? 'none' : ''}${i === this.at ? ' at' : ''}`, onpointerdown: (event) => {
      event.preventDefault();
      this.choose(one);
    }}, h('span', one.text), one.quiet && h('span.quiet.mono', one.quiet))));
  }

  choose(one) {
    if (!one?.go) return;
    one.go();
    this.close();
    this.input.blur();
  }

  close() {
    this.found = [];
    this.list.hidden = true;
  }

  key(event) {
    const {found} = this;
    if (event.key === 'Enter') this.choose(found?.[this.at]);
    else if (event.key === 'Escape') {
      this.input.value = '';
      this.close();
      this.input.blur();
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (!found?.length) return;
      this.at = (this.at + (event.key === 'ArrowDown' ? 1 : found.length - 1)) % found.length;
      this.draw();
    }
  }
}

function parseAddress(text) {
  return /^0x[0-9a-f]{1,16}$/i.test(text) ? BigInt(text) : /^[0-9a-f]{9,16}$/i.test(text) && /[a-f]/i.test(text) ? BigInt(`0x${text}`) : null;
}
