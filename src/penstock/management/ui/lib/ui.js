// The one place that knows which library draws: pages import everything from here.

import { h, render, Fragment, Component } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export {
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer, useId,
  useContext, useErrorBoundary,
} from "../vendor/hooks.js";
export {
  signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect,
} from "../vendor/signals.js";
export { h, render, Fragment, Component };

// Control characters, marks that change the direction of text, half characters; not line end and
// tab, nor the joiners that letters and signs are made with.
const UNSEEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text of clients: what would turn a line round or hide is shown as its code. */
export const visible = (text) => text.replace(UNSEEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

const shown = (child) => (typeof child === "string" ? visible(child) : Array.isArray(child) ? child.map(shown) : child);

/** All text of all pages comes through here. */
export const html = htm.bind((type, props, ...children) => h(type, props, ...children.map(shown)));

/** Class names from strings and falsy values. */
export const cx = (...names) => names.filter(Boolean).join(" ");
