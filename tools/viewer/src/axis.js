// axis.js: the axis of the address map: bytes of address space to a line on which empty stretches are collapsed.
//
//     places   |####|......................|###|.......|##########|
//     line     |####|/|###|/|##########|            "/": a break, as wide for 4 MiB as for 4 TiB
//
// Owns: the pieces of the line, and the way between places and line. Invariants: pieces rise and touch one another, on
// both sides; a kept piece has the same length on both; a piece is either kept or a break. At true scale there is one
// kept piece.
import {lastAtOrBefore} from './util.js';

const MAX_BREAKS = 240;
const BREAKS_SHARE = 0.25; // of the line, all together at most

export class Axis {
  // spans: [start, end) of everything that is to be seen, by rising start; total: bytes of the space
  constructor(spans, total, {trueScale = false, granule = 2097152} = {}) {
    this.total = Math.max(total, 1);
    this.trueScale = trueScale;
    this.pieces = trueScale || spans.length === 0 ? [{from: 0, to: this.total, gap: false}]
                                                  : cut(merge(spans, granule), this.total, granule);
    const kept = this.pieces.filter((p) => !p.gap).reduce((sum, p) => sum + p.to - p.from, 0);
    const breaks = this.pieces.filter((p) => p.gap).length;
    this.breakLength = breaks === 0 ? 0 : Math.min(kept / 40, (kept * BREAKS_SHARE) / breaks);
    let at = 0;
    for (const piece of this.pieces) {
      piece.start = at;
      piece.length = piece.gap ? this.breakLength : piece.to - piece.from;
      at += piece.length;
    }
    this.length = at;
    this.froms = Float64Array.from(this.pieces, (p) => p.from);
    this.starts = Float64Array.from(this.pieces, (p) => p.start);
  }

  toLine(place) {
    const piece = this.pieces[Math.max(0, lastAtOrBefore(this.froms, this.froms.length, place))];
    const into = Math.min(Math.max(place - piece.from, 0), piece.to - piece.from);
    return piece.start + (piece.gap ? (into / (piece.to - piece.from)) * piece.length : into);
  }

  pieceAtLine(line) {
    return this.pieces[Math.max(0, lastAtOrBefore(this.starts, this.starts.length, line))];
  }

  toPlace(line) {
    const piece = this.pieceAtLine(line);
    const into = Math.min(Math.max(line - piece.start, 0), piece.length);
    return piece.from + (piece.gap ? (into / piece.length) * (piece.to - piece.from) : into);
  }
}

// merge joins spans that overlap or lie closer than eight granules.
function merge(spans, granule) {
  const merged = [];
  for (const [start, end] of spans) {
    const last = merged[merged.length - 1];
    if (last && start <= last[1] + 8 * granule) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

// cut makes pieces of what is kept and what is collapsed: gaps that are long beside what is kept, the longest MAX_BREAKS
// of them.
function cut(spans, total, granule) {
  const kept = spans.reduce((sum, [start, end]) => sum + end - start, 0);
  const least = Math.max(8 * granule, kept / 30);
  const gaps = [];
  let end = 0;
  for (const span of [...spans, [total, total]]) {
    if (span[0] - end > least) gaps.push({from: end, to: span[0]});
    end = Math.max(end, span[1]);
  }
  gaps.sort((a, b) => b.to - b.from - (a.to - a.from));
  gaps.length = Math.min(gaps.length, MAX_BREAKS);
  gaps.sort((a, b) => a.from - b.from);
  const pieces = [];
  let at = 0;
  for (const gap of gaps) {
    if (gap.from > at) pieces.push({from: at, to: gap.from, gap: false});
    pieces.push({from: gap.from, to: gap.to, gap: true});
    at = gap.to;
  }
  if (at < total) pieces.push({from: at, to: total, gap: false});
  return pieces;
}
