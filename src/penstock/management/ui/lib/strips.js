// Files as strips: how long one is says how large it is, what is hatched is garbage.

import { html, cx, useId } from "./ui.js";
import { Drawing } from "./drawing.js";
import { bytes, count, percent } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 34;
const LEAST = 6;

/** files: [{name, bytes, garbage_share?, tone?, text?}], oldest first. */
export function FileStrip({ title, files }) {
  const id = useId();
  const total = files.reduce((sum, file) => sum + Math.max(1, file.bytes), 0);
  const room = WIDTH - files.length * 2;
  // A nearly empty file is still a file one can point at.
  const widths = files.map((file) => Math.max(LEAST, (Math.max(1, file.bytes) / total) * room));
  const scale = room / widths.reduce((sum, width) => sum + width, 0);
  let x = 0;
  const desc = files.length === 0 ? "no files"
    : `${count(files.length)} files, ${bytes(files.reduce((sum, file) => sum + file.bytes, 0))}: `
      + files.slice(0, 12).map((file) => `${file.name} ${bytes(file.bytes)}${file.garbage_share ? ` ${percent(file.garbage_share)} garbage` : ""}`).join(", ");
  return html`
    <${Drawing} title=${title} desc=${desc} width=${WIDTH} height=${HEIGHT} className="strip">
      <defs><pattern id=${`${id}-hatch`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hatch-back" width="6" height="6" /><rect class="hatch" width="2.4" height="6" /></pattern></defs>
      ${files.map((file, index) => {
        const width = widths[index] * scale;
        const at = x;
        x += width + 2;
        const garbage = (file.garbage_share ?? 0) * width;
        return html`
          <g key=${file.name} class=${cx("file", file.tone)} data-file=${file.name}>
            <rect class="living" x=${at} y="4" width=${width} height="26" rx="3" />
            ${garbage > 0 && html`<rect x=${at + width - garbage} y="4" width=${garbage} height="26" rx="3" fill=${`url(#${id}-hatch)`} />`}
            <rect class="edge" x=${at} y="4" width=${width} height="26" rx="3" />
            <title>${`${file.name}: ${bytes(file.bytes)}${file.garbage_share === undefined ? "" : `, ${percent(file.garbage_share)} garbage`}${file.text ? `, ${file.text}` : ""}`}</title>
          </g>`;
      })}
    <//>`;
}

const SEGMENT = { width: 26, height: 96 };

/** A segment of the index: from below what lives, above it what is acknowledged; the rest was
 *  never written, since what passes through never rests. The line is what was delivered. */
export function SegmentStrip({ title, segments }) {
  const width = Math.max(300, segments.length * (SEGMENT.width + 6) + 4);
  const desc = segments.length === 0 ? "no segments: nothing rests on disk"
    : `${count(segments.length)} segments; ` + segments.slice(0, 10).map((one) =>
      `${one.name} ${count(one.published)} published, ${count(one.delivered)} delivered, ${count(one.acked)} acknowledged of ${count(one.entries)}`).join("; ");
  return html`
    <${Drawing} title=${title} desc=${desc} width=${width} height=${SEGMENT.height + 24} className="segments" wide>
      ${segments.map((one, index) => html`<${Segment} key=${one.name} one=${one} x=${2 + index * (SEGMENT.width + 6)} />`)}
    <//>`;
}

function Segment({ one, x }) {
  const part = (number) => (number / one.entries) * SEGMENT.height;
  const living = part(one.messages);
  const acked = part(one.acked);
  const bottom = 2 + SEGMENT.height;
  return html`
    <g class=${cx("segment", one.state.replace(" ", "-"))} data-segment=${one.name}>
      <rect class="room" x=${x} y="2" width=${SEGMENT.width} height=${SEGMENT.height} rx="3" />
      <rect class="living" x=${x} y=${bottom - living} width=${SEGMENT.width} height=${living} />
      <rect class="acked" x=${x} y=${bottom - living - acked} width=${SEGMENT.width} height=${acked} />
      ${one.delivered > 0 && html`<line class="delivered" x1=${x - 2} x2=${x + SEGMENT.width + 2} y1=${bottom - part(one.delivered)} y2=${bottom - part(one.delivered)} />`}
      <rect class="edge" x=${x} y="2" width=${SEGMENT.width} height=${SEGMENT.height} rx="3" />
      <text class="quiet" x=${x + SEGMENT.width / 2} y=${bottom + 16} text-anchor="middle">${one.first_seq_id / one.entries}</text>
      <title>${`${one.name}: ${count(one.published)} published, ${count(one.delivered)} delivered, ${count(one.acked)} acknowledged; ${bytes(one.bytes)}, ${percent(one.garbage_share)} garbage, ${one.state}`}</title>
    </g>`;
}
