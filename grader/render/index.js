"use strict";
const body = document.querySelector("#students tbody");
const heads = Array.from(document.querySelectorAll("#students thead th"));
const search = document.getElementById("search");
const found = document.getElementById("found");
const told = new Map(Array.from(body.rows, row => [row, row.textContent.toLowerCase()]));

function text(row, column) { return row.cells[column].textContent.trim(); }

function sort(column) {
  const head = heads[column];
  const numeric = head.classList.contains("number");
  const upwards = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "descending" : !numeric;
  const ordered = Array.from(body.rows).sort((a, b) => {
    const [x, y] = [text(a, column), text(b, column)];
    if (!x || !y) return Number(!x) - Number(!y);
    const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true });
    return upwards ? order : -order;
  });
  heads.forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
  body.append(...ordered);
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  told.forEach((said, row) => {
    row.hidden = !words.every(word => said.includes(word));
    shown += !row.hidden;
  });
  found.textContent = words.length ? shown + " of " + told.size : "";
}

heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
search.addEventListener("input", filter);
