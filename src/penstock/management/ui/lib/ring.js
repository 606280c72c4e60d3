// The ring of a mirrored queue: its members on a circle in the order in which messages go round, the
// master marked; beside it who has a copy and is not in the ring. One drawing large, one for lists.
//
//   membersOf(row)   what /api/penstock/mirrors says of a queue → [{node, role, what, …}], circle first
//   <Ring row>       the large drawing;  <SmallRing row>: only marks and colours, with a sentence
//   <Progress sync>  a bar with words for a mirror that fetches what it lacks

import { html, cx } from "./ui.js";
import { Drawing } from "./drawing.js";
import { Meter } from "./parts.js";
import { count, duration, rate } from "./format.js";

const WIDTH = 560;
const HEIGHT = 320;
const RADIUS = 105;
const SMALL = 44;
const MARKS = { master: "M", synchronised: "✓", behind: "…", dead: "✝", synced: "–", partial: "–" };
const WORDS = {
  master: "master", synchronised: "synchronised", behind: "not synchronised", dead: "dead, being finished",
  synced: "no member now, has everything", partial: "no member now, has a part",
};

/** "penstock@a/1f#3" is the third joining of the life 1f of penstock@a. */
export const nodeOf = (name) => name.slice(0, name.lastIndexOf("/"));
const memberOf = (name) => name.slice(0, name.lastIndexOf("#"));

export function membersOf(row) {
  const copies = new Map(row.copies.map((copy) => [copy.member, copy]));
  const circle = (row.ring?.members ?? []).map(({ name, dead }) => {
    const copy = copies.get(memberOf(name));
    if (!dead) copies.delete(memberOf(name));
    return { id: name, node: nodeOf(name), copy, inRing: true, what: dead ? "dead" : whatOf(copy) };
  });
  const joining = [...copies.values()].map((copy) => (
    { id: copy.member, node: copy.node, copy, inRing: false, what: whatOf(copy) }));
  const away = Object.entries(row.recoverable).map(([node, had]) => (
    { id: node, node, inRing: false, what: had }));
  return [...circle, ...joining, ...away];
}

const whatOf = (copy) =>
  copy?.role === "master" ? "master" : copy?.synchronised ? "synchronised" : "behind";

export const wordsOf = ({ what, inRing }) =>
  WORDS[what] + (inRing || what === "synced" || what === "partial" ? "" : ", not in the ring yet");

/** What would happen if the master's node stopped now. */
export function outlook(row) {
  if (row.master === null) return `This queue has no master and cannot be used: ${row.why}.`;
  const mirrors = row.copies.filter(({ role }) => role !== "master");
  const synchronised = mirrors.filter((one) => one.synchronised).length;
  if (mirrors.length === 0) return `It has no mirror now: if ${row.master} stops, the queue cannot be used until it is back.`;
  if (mirrors.length === 1 && synchronised === 0) return `Its only mirror is not synchronised: if ${row.master} stops, messages are lost or wait for it.`;
  if (mirrors.length === 1) return `Its mirror is synchronised: if ${row.master} stops, it takes over and nothing is lost.`;
  if (synchronised === 0) return `None of its ${count(mirrors.length)} mirrors is synchronised: if ${row.master} stops, messages are lost or wait for it.`;
  const some = synchronised === mirrors.length ? `All ${count(mirrors.length)}` : `${count(synchronised)} of ${count(mirrors.length)}`;
  return `${some} mirrors are synchronised: if ${row.master} stops, the eldest of these takes over and nothing is lost.`;
}

const place = (index, of, radius) => {
  const angle = (index / Math.max(1, of)) * 2 * Math.PI - Math.PI / 2;
  return [radius * Math.cos(angle), radius * Math.sin(angle), angle];
};

export function Ring({ row }) {
  const members = membersOf(row);
  const circle = members.filter(({ inRing }) => inRing);
  const outside = members.filter(({ inRing }) => !inRing);
  const words = `${outlook(row)} ${members.map((one) => `${one.node}: ${wordsOf(one)}`).join("; ")}.`;
  const height = HEIGHT + (outside.length ? 70 : 0);
  return html`
    <${Drawing} title=${`Mirror ring of queue ${row.name}`} desc=${words} width=${WIDTH} height=${height} className="ring">
      <g transform=${`translate(${WIDTH / 2} ${HEIGHT / 2})`}>
        <circle class=${cx("orbit", circle.length < 2 && "alone")} r=${RADIUS} />
        ${circle.length > 1 && circle.map((one, index) => {
          const [x, y, angle] = place(index + .5, circle.length, RADIUS);
          return html`<path key=${one.id} class="way-on" d="M6 0 L-6 -6 L-6 6 Z"
            transform=${`translate(${x} ${y}) rotate(${(angle * 180) / Math.PI + 90})`} />`;
        })}
        <text class="term" y="-4" text-anchor="middle">term ${row.term}</text>
        <text class="quiet" y="16" text-anchor="middle">view ${row.version}${row.ring ? `, ring ${row.ring.version}` : ""}</text>
        ${circle.map((one, index) => {
          const [x, y] = place(index, circle.length, RADIUS);
          const side = Math.abs(x) < 30 ? (y < 0 ? "above" : "below") : x < 0 ? "left" : "right";
          return html`<${Member} key=${one.id} one=${one} x=${x} y=${y} side=${side} />`;
        })}
      </g>
      ${outside.map((one, index) => html`
        <${Member} key=${one.id} one=${one} x=${((index + .5) / outside.length) * WIDTH} y=${HEIGHT + 18} side="below" />`)}
    <//>`;
}

/** Where name and words stand beside a member: x, y, y of the second line, which end is there. */
const BESIDE = { above: [0, -40, -26, "middle"], below: [0, 36, 50, "middle"], left: [-26, -2, 13, "end"], right: [26, -2, 13, "start"] };

function Member({ one, x, y, side }) {
  const [left, first, second, anchor] = BESIDE[side];
  return html`
    <g class=${cx("member", one.what)} data-member=${one.id} transform=${`translate(${x} ${y})`}>
      <circle r=${one.what === "master" ? 20 : 15} />
      <text y="4" text-anchor="middle">${MARKS[one.what]}</text>
      <text class="name" x=${left} y=${first} text-anchor=${anchor}>${one.node}</text>
      <text class="quiet" x=${left} y=${second} text-anchor=${anchor}>${wordsOf(one)}</text>
    </g>`;
}

export function SmallRing({ row }) {
  const members = membersOf(row);
  return html`
    <${Drawing} title=${`Ring of ${row.name}`} desc=${outlook(row)} width=${SMALL} height=${SMALL} className="ring small">
      <g transform=${`translate(${SMALL / 2} ${SMALL / 2})`}>
        <circle class=${cx("orbit", members.length < 2 && "alone")} r="15" />
        ${members.map((one, index) => {
          const [x, y] = place(index, members.length, 15);
          return html`<g key=${one.id} class=${cx("member", one.what)}><circle cx=${x} cy=${y} r=${one.what === "master" ? 6 : 5} /></g>`;
        })}
      </g>
    <//>`;
}

export function Progress({ node, sync }) {
  const left = sync.eta_ms === null ? "" : `, ${duration(sync.eta_ms)} left`;
  const pace = sync.rate === null ? "" : `, ${rate(sync.rate)}`;
  return html`<${Meter} label=${`Synchronisation of ${node}`} value=${sync.messages} limit=${sync.messages_total} warn=${2} bad=${2}
    text=${`${count(sync.messages)} of ${count(sync.messages_total)} messages${pace}${left}`} />`;
}
