// What the pictures share: a frame a screen reader understands, arrows that move as fast as what
// they stand for, strips and bars. Colours and motion are classes (views.css), never styles here.

import { html, cx, useId } from "./ui.js";
import { rate } from "./format.js";

/** A picture with a name and a sentence for those who do not see it; a group, since it may have links.
 *  wide: it may be wider than the window, so the keyboard must reach it to move it sideways. */
export function Drawing({ title, desc, width, height, className, wide, children }) {
  const id = useId();
  const reach = wide ? { tabindex: 0, role: "group", "aria-label": title } : {};
  return html`
    <div class="drawing-box" ...${reach}>
      <svg class=${cx("drawing", className)} viewBox=${`0 0 ${width} ${height}`} role="group"
        aria-labelledby=${wide ? `${id}-desc` : `${id}-title ${id}-desc`}>
        <title id=${`${id}-title`}>${title}</title>
        <desc id=${`${id}-desc`}>${desc}</desc>
        ${children}
      </svg>
    </div>`;
}

/** How fast the dashes of an arrow go; one step for each power of ten a second. */
export function speed(perSecond) {
  if (!perSecond || perSecond <= 0) return "still";
  return perSecond < 10 ? "slow" : perSecond < 1000 ? "brisk" : "fast";
}

/** A line with a head. d: path; end: [x, y, angle in degrees]; label at [x, y]. */
export function Arrow({ id, d, end, at, perSecond, label, tone, anchor = "middle" }) {
  const pace = speed(perSecond);
  const text = label ?? (pace === "still" ? "" : rate(perSecond));
  return html`
    <g class=${cx("arrow", pace, tone)} data-arrow=${id}>
      <path class="way" d=${d} />
      ${pace !== "still" && html`<path class="dashes" d=${d} />`}
      <path class="tip" d="M0 0 L-8 -4 L-8 4 Z" transform=${`translate(${end[0]} ${end[1]}) rotate(${end[2]})`} />
      ${text && html`<text class="rate" x=${at[0]} y=${at[1]} text-anchor=${anchor}>${text}</text>`}
    </g>`;
}

/** columns: names; rows: [[header, …cells]]: the numbers of a picture. */
export function Numbers({ caption, columns, rows }) {
  return html`
    <div class="scroll" tabindex="0" role="group" aria-label=${caption}>
      <table class="numbers">
        <caption class="unseen">${caption}</caption>
        <thead><tr>${columns.map((name, index) => html`
          <th scope="col" key=${name} class=${cx(index > 0 && "number")}>${name}</th>`)}</tr></thead>
        <tbody>${rows.map(([head, ...cells]) => html`
          <tr key=${head}><th scope="row">${head}</th>
            ${cells.map((cell, index) => html`<td class="number" key=${index}>${cell}</td>`)}</tr>`)}
        </tbody>
      </table>
    </div>`;
}

/** bars: [{label, value, text, tone}], from the left, the longest is full. */
export function Bars({ title, desc, bars, width = 420 }) {
  const row = 24;
  const most = Math.max(1, ...bars.map(({ value }) => value));
  const room = width - 190;
  return html`
    <${Drawing} title=${title} desc=${desc} width=${width} height=${bars.length * row + 4} className="bars">
      ${bars.map(({ label, value, text, tone }, index) => html`
        <g key=${label} transform=${`translate(0 ${index * row + 2})`}>
          <text class="quiet" x="96" y="15" text-anchor="end">${label}</text>
          <rect class="track" x="104" y="4" width=${room} height="14" rx="3" />
          <rect class=${cx("bar", tone)} x="104" y="4" width=${(value / most) * room} height="14" rx="3" />
          <text x=${width - 78} y="15">${text}</text>
        </g>`)}
    <//>`;
}

/** A line through values, the last one marked. */
export function Spark({ title, values, width = 220, height = 40 }) {
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(height - 3 - (value / most) * (height - 6)).toFixed(1)}`);
  const desc = values.length ? `${values.length} values, the last ${values.at(-1)}, the highest ${Math.max(...values)}` : "nothing yet";
  return html`
    <${Drawing} title=${title} desc=${desc} width=${width} height=${height} className="spark">
      <polyline class="line" points=${points.join(" ")} />
      ${points.length > 0 && html`<circle class="last" cx=${points.at(-1).split(",")[0]} cy=${points.at(-1).split(",")[1]} r="2.5" />`}
    <//>`;
}
