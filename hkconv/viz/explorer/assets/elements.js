// Elements of the page. Text of the data is written with textContent and attributes; nothing makes markup of it.

const $ = (id) => document.getElementById(id);

function make(tag, { text, className, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
