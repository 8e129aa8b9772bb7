"use strict";
const form = document.getElementById("whatif"), model = JSON.parse(form.dataset.model);
const fields = form.querySelector(".whatif"), table = document.getElementById("answers"), asked = [];
const make = (kind, into, text) => { const made = document.createElement(kind); if (text !== undefined) made.textContent = text; into.append(made); return made; };
for (const feature of model.features) {
  const label = make("label", fields, feature.name), field = document.createElement(feature.values ? "select" : "input");
  if (feature.values) { make("option", field, "open").value = ""; feature.values.forEach((each, at) => { make("option", field, each[0]).value = at; }); }
  else { field.type = "number"; field.step = "any"; field.placeholder = "open"; }
  label.append(field); asked.push([feature, field]);
}
const rows = model.classes.map((name) => { const row = make("tr", table); make("th", row, name); const number = make("td", row); number.className = "num"; const meter = make("progress", make("td", row)); meter.className = "answer"; meter.max = 1; meter.setAttribute("aria-label", name); return [number, meter]; });
const answer = () => {
  const score = model.prior.map((each) => each === null ? -Infinity : each);
  for (const [feature, field] of asked) {
    if (field.value === "") continue;
    score.forEach((_, at) => {
      if (feature.values) score[at] += feature.values[field.value][1][at];
      else { const point = Math.min(Math.max(Math.floor(Number(field.value) * feature.scale + 0.5), feature.low), feature.high), gap = point / feature.scale - feature.mean[at], spread = feature.variance[at]; score[at] -= gap * gap / (2 * spread) + Math.log(spread) / 2; }
    });
  }
  const top = Math.max(...score), part = score.map((each) => Math.exp(each - top)), all = part.reduce((a, b) => a + b, 0);
  rows.forEach(([number, meter], at) => { meter.value = part[at] / all; number.textContent = (100 * part[at] / all).toFixed(1) + " %"; });
};
form.addEventListener("input", answer); form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false; answer();
