// The table of pages: who draws which address, and where it stands in the menu.
//
//   path     behind the #/; ":name" becomes params.name
//   module   a file of this folder, loaded when it is first looked at
//   menu     the section it is listed under; without one it is reached from another page
//   monitor, administrator   true = only for users with such a tag

export const sections = ["", "Traffic", "Insight", "Administration"];

export const pages = [
  { path: "", title: "Overview", module: "overview.js", menu: "" },

  { path: "connections", title: "Connections", module: "connections.js", menu: "Traffic" },
  { path: "connections/:name", title: "Connection", module: "connection.js" },
  { path: "channels", title: "Channels", module: "channels.js", menu: "Traffic" },
  { path: "channels/:name", title: "Channel", module: "channel.js" },
  { path: "exchanges", title: "Exchanges", module: "exchanges.js", menu: "Traffic" },
  { path: "exchanges/:vhost/:name", title: "Exchange", module: "exchange.js" },
  { path: "queues", title: "Queues", module: "queues.js", menu: "Traffic" },
  { path: "queues/:vhost/:name", title: "Queue", module: "queue.js" },
  { path: "consumers", title: "Consumers", module: "consumers.js", menu: "Traffic" },
  { path: "topics", title: "NSQ topics", module: "topics.js", menu: "Traffic" },

  { path: "flow", title: "Flow", module: "flow.js", menu: "Insight", monitor: true },
  { path: "mirrors", title: "Mirrors", module: "mirrors.js", menu: "Insight" },
  { path: "storage", title: "Storage", module: "storage.js", menu: "Insight", monitor: true },
  { path: "forecast", title: "Alarm forecast", module: "forecast.js", menu: "Insight", monitor: true },
  { path: "pipelines", title: "Pipelines", module: "pipelines.js", menu: "Insight" },
  { path: "links", title: "Links", module: "links.js", menu: "Insight", monitor: true },
  { path: "topics/:topic/:channel", title: "NSQ channel", module: "heaps.js" },

  { path: "policies", title: "Policies", module: "policies.js", menu: "Administration" },
  { path: "users", title: "Users", module: "users.js", menu: "Administration", administrator: true },
  { path: "users/:name", title: "User", module: "user.js", administrator: true },
  { path: "vhosts", title: "Virtual hosts", module: "vhosts.js", menu: "Administration" },
  { path: "vhosts/:name", title: "Virtual host", module: "vhost.js" },
  { path: "limits", title: "Limits", module: "limits.js", menu: "Administration", administrator: true },
  { path: "nodes", title: "Nodes", module: "nodes.js", menu: "Administration", monitor: true },
  { path: "certificates", title: "Certificates", module: "certificates.js", menu: "Administration", monitor: true },
  { path: "log", title: "Log", module: "logs.js", menu: "Administration", monitor: true },
  { path: "audit", title: "Audit trail", module: "audit.js", menu: "Administration", administrator: true },
  { path: "definitions", title: "Definitions", module: "definitions.js", menu: "Administration", administrator: true },
  { path: "api", title: "HTTP API", module: "api.js", menu: "Administration" },
];

// The tabs of a queue that are drawn by panels/<module>; each gets {vhost, name, queue}.
// stream: true = of a stream, false = of all others, none = of any queue.
export const queuePanels = [
  { id: "flow", title: "Flow", module: "flow.js", stream: false },
  { id: "stream", title: "Stream", module: "stream.js", stream: true },
  { id: "messages", title: "Messages", module: "messages.js", stream: false },
  { id: "heaps", title: "Deadlines", module: "heaps.js", stream: false },
  { id: "storage", title: "Storage", module: "storage.js", stream: false },
  { id: "mirrors", title: "Mirrors", module: "mirrors.js" },
];
