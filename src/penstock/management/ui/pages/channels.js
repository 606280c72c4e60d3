// All channels.

import { enc } from "../lib/api.js";
import { html } from "../lib/ui.js";
import { CHANNEL_COLUMNS } from "../lib/channels.js";
import { Listing } from "../lib/listing.js";

export default function Channels() {
  return html`
    <div class="head"><h1>Channels</h1></div>
    <${Listing} name="channels" label="Channels" path="/api/channels" within=${(vhost) => `/api/vhosts/${enc(vhost)}/channels`} columns=${CHANNEL_COLUMNS}
      always=${["name"]} rowKey=${(row) => row.name} empty="There are no channels." />`;
}
