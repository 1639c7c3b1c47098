// space.js: all reserved addresses on one axis.
//
// Owns: the ranges of address space, by rising base, laid behind one another: "place" is a number of bytes on that axis
// (below 2^53, so a Number), while an address has 64 bits and is a BigInt. Everything else in the page counts in places.
import {hex} from './util.js';

export class Space {
  // ranges: [{base: BigInt, bytes: Number}]
  constructor(ranges) {
    const sorted = [...ranges].sort((a, b) => (a.base < b.base ? -1 : a.base > b.base ? 1 : 0));
    let start = 0;
    this.ranges = sorted.map((range, index) => {
      const one = {index, base: range.base, bytes: range.bytes, start};
      start += range.bytes;
      return one;
    });
    this.bytes = start;
  }

  rangeOf(place) {
    const {ranges} = this;
    for (let i = ranges.length - 1; i >= 0; i--) if (place >= ranges[i].start) return ranges[i];
    return ranges[0];
  }

  address(place) {
    const range = this.rangeOf(place);
    return range ? range.base + BigInt(Math.floor(place - range.start)) : 0n;
  }

  addressText(place) {
    return hex(this.address(place));
  }

  // placeOf: -1 where the address lies in no range.
  placeOf(address) {
    for (const range of this.ranges) {
      if (address >= range.base && address < range.base + BigInt(range.bytes)) {
        return range.start + Number(address - range.base);
      }
    }
    return -1;
  }

  startOf(base) {
    const range = this.ranges.find((one) => one.base === base);
    return range ? range.start : -1;
  }

  // union: the ranges of both; those of one base count once, with the larger size.
  static union(a, b) {
    const byBase = new Map();
    for (const range of [...a, ...b]) {
      const known = byBase.get(range.base);
      if (!known || known.bytes < range.bytes) byBase.set(range.base, {base: range.base, bytes: range.bytes});
    }
    return new Space([...byBase.values()]);
  }
}
