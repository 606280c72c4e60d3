// What somebody without eyes, mouse or good light needs of a page; returns what is missing.
() => {
  const found = [];
  const shown = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== "hidden";
  const named = (element) => element.textContent.trim() || element.ariaLabel || element.title
    || element.getAttribute("aria-labelledby") || element.querySelector("img[alt]:not([alt=''])");
  for (const element of document.querySelectorAll("button, a[href], summary")) {
    if (shown(element) && !named(element)) found.push(`without a name: ${element.outerHTML}`);
  }
  for (const input of document.querySelectorAll("input, select, textarea")) {
    if (shown(input) && input.labels.length === 0 && !input.ariaLabel) found.push(`without a label: ${input.outerHTML}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of new Set(ids.filter((one, index) => ids.indexOf(one) !== index))) found.push(`twice: id ${id}`);
  for (const attribute of ["aria-controls", "aria-labelledby", "aria-describedby", "for"]) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of element.getAttribute(attribute).split(" ")) {
        if (shown(element) && !document.getElementById(id)) found.push(`${attribute} leads nowhere: ${id}`);
      }
    }
  }
  const headings = document.querySelectorAll("h1").length;
  if (headings !== 1) found.push(`${headings} headings of level 1`);
  for (const table of document.querySelectorAll("table")) {
    if (shown(table) && !table.caption && !table.ariaLabel && !table.hasAttribute("aria-labelledby")) {
      found.push(`a table without a name: ${table.textContent.slice(0, 60)}`);
    }
  }
  for (const head of document.querySelectorAll("th")) {
    if (shown(head) && !named(head) && !head.querySelector("[aria-label]")) found.push(`an empty head in a table: ${head.closest("table").textContent.slice(0, 60)}`);
  }
  for (const link of document.querySelectorAll("a[href]")) {
    const beside = [...link.parentElement.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (shown(link) && beside && getComputedStyle(link).textDecorationLine === "none") {
      found.push(`a link that only its colour tells from the text beside it: ${link.outerHTML}`);
    }
  }
  const landmarks = [...document.querySelectorAll("nav, main, aside, section[aria-label], section[aria-labelledby], [role=region]")];
  const label = (element) => element.ariaLabel ?? document.getElementById(element.getAttribute("aria-labelledby"))?.textContent ?? "";
  const kind = ({ localName }) => (["nav", "main", "aside"].includes(localName) ? localName : "region");
  const names = landmarks.filter(shown).map((element) => `${kind(element)} "${label(element)}"`);
  for (const name of new Set(names.filter((one, index) => names.indexOf(one) !== index))) found.push(`two landmarks of one name: ${name}`);
  for (const image of document.querySelectorAll("img:not([alt]), svg:not([aria-hidden]):not([aria-label]):not([aria-labelledby])")) {
    if (shown(image) && image.closest("svg") === image && !image.querySelector("title")) found.push("a picture without words");
  }

  // -- contrast: 4.5 to 1 for text, as WCAG's AA wants it --
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const layered = (colours) => {
    paint.fillStyle = "white";
    paint.fillRect(0, 0, 1, 1);
    for (const colour of colours) {
      paint.fillStyle = colour;
      paint.fillRect(0, 0, 1, 1);
    }
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const colours = [];
    for (let at = element; at; at = at.parentElement) colours.unshift(getComputedStyle(at).backgroundColor);
    return colours;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const judged = new Set();
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || judged.has(element) || element.closest("svg, :disabled, noscript, script, .unseen, .skip") || !shown(element)) continue;
    judged.add(element);
    const back = behind(element);
    const [light, dark] = [luminance(layered(back)), luminance(layered([...back, getComputedStyle(element).color]))].toSorted((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${element.tagName} ${element.className} "${texts.currentNode.data.trim().slice(0, 40)}"`);
  }
  return [...new Set(found)];
}
