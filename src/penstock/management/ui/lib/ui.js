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

export const html = htm.bind(h);

/** Class names from strings and falsy values. */
export const cx = (...names) => names.filter(Boolean).join(" ");
