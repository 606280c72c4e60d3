// Where the copies of a queue are: the nodes on a circle, the master marked.
// A queue without mirrors is shown as what it is, alone.

import { html, cx } from "../lib/ui.js";
import { Card } from "../lib/parts.js";
import { Drawing, Numbers } from "../lib/drawing.js";

const SIZE = 300;
const RADIUS = 100;

/** The members of the ring in their order, from the fields RabbitMQ has for them. */
function members(queue) {
  const synchronised = new Set(queue.synchronised_slave_nodes ?? []);
  const mirrors = (queue.slave_nodes ?? []).map((node) => ({ node, role: "mirror", synchronised: synchronised.has(node) }));
  return [{ node: queue.node, role: "master", synchronised: true }, ...mirrors];
}

function sentence(queue, ring) {
  const mirrors = ring.slice(1);
  if (mirrors.length === 0) {
    const kept = queue.durable
      ? "its persistent messages stay on that node's disk and are there again when it is back"
      : "it is not durable, so it is gone when that node stops";
    return `This queue has no mirrors: it is on ${queue.node} alone. If that node stops, the queue cannot be used; ${kept}.`;
  }
  const behind = mirrors.filter((one) => !one.synchronised);
  if (behind.length === mirrors.length) return `None of its ${mirrors.length} mirrors is synchronised: if ${queue.node} stops now, messages are lost or wait for it.`;
  if (behind.length > 0) return `${mirrors.length - behind.length} of ${mirrors.length} mirrors are synchronised: if ${queue.node} stops now, one of them takes over and nothing is lost.`;
  return `All ${mirrors.length} mirrors are synchronised: if ${queue.node} stops now, the eldest takes over and nothing is lost.`;
}

export default function MirrorsPanel({ queue }) {
  const ring = members(queue);
  const words = sentence(queue, ring);
  return html`
    <${Card} title="Mirror ring">
      <p class="sentence">${words}</p>
      <div class="split">
        <${Drawing} title=${`Mirror ring of queue ${queue.name}`} desc=${words} width=${SIZE} height=${SIZE} className="ring">
          <circle class=${cx("orbit", ring.length === 1 && "alone")} cx=${SIZE / 2} cy=${SIZE / 2} r=${RADIUS} />
          ${ring.map((one, index) => html`<${Member} key=${one.node} ...${one} turn=${index / ring.length} />`)}
        <//>
        <${Numbers} caption="Members of the ring" columns=${["Node", "Role", "Synchronised"]}
          rows=${ring.map(({ node, role, synchronised }) => [node, role, synchronised ? "yes" : "no"])} />
      </div>
    <//>`;
}

function Member({ node, role, synchronised, turn }) {
  const angle = turn * 2 * Math.PI - Math.PI / 2;
  const x = SIZE / 2 + RADIUS * Math.cos(angle);
  const y = SIZE / 2 + RADIUS * Math.sin(angle);
  return html`
    <g class=${cx("member", role, !synchronised && "behind")} data-member=${node}>
      <circle cx=${x} cy=${y} r=${role === "master" ? 20 : 15} />
      <text x=${x} y=${y + 4} text-anchor="middle">${role === "master" ? "M" : synchronised ? "✓" : "…"}</text>
      <text class="quiet" x=${x} y=${y + (y < SIZE / 2 ? -26 : 34)} text-anchor="middle">${node}</text>
    </g>`;
}
