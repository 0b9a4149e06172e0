(function () {
  "use strict";

  /* Table of checks: filter and sort. Without this script it is a plain table. */
  var table = document.getElementById("checks-table");
  var controls = document.querySelector(".controls");
  if (table && controls) {
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    var chips = Array.prototype.slice.call(controls.querySelectorAll(".chip"));
    var byStage = document.getElementById("by-stage");
    var byText = document.getElementById("by-text");
    var shownCount = document.getElementById("shown-count");
    var noneLeft = document.getElementById("none-left");
    var words = rows.map(function (row) { return row.textContent.toLowerCase(); });
    controls.hidden = false;

    var filter = function () {
      var tones = chips.filter(function (chip) { return chip.getAttribute("aria-pressed") === "true"; })
        .map(function (chip) { return chip.dataset.tone; });
      var wanted = byText.value.toLowerCase().split(/\s+/).filter(Boolean);
      var shown = 0;
      rows.forEach(function (row, index) {
        var fits = (!tones.length || tones.indexOf(row.dataset.t) >= 0) &&
          (!byStage.value || row.dataset.s === byStage.value) &&
          wanted.every(function (word) { return words[index].indexOf(word) >= 0; });
        row.hidden = !fits;
        if (fits) { shown += 1; }
      });
      shownCount.textContent = shown === rows.length ? shown + " checks" : shown + " of " + rows.length + " checks";
      noneLeft.hidden = shown > 0;
    };
    chips.forEach(function (chip) {
      chip.addEventListener("click", function () {
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        filter();
      });
    });
    byStage.addEventListener("change", filter);
    byText.addEventListener("input", filter);

    var order = ["FAIL", "UNKNOWN", "no_record", "gated", "WARN", "PASS", "not_assessed", "declared"];
    var keyOf = function (row, column, kind) {
      var cell = row.cells[column];
      if (kind === "verdict") { return order.indexOf(row.dataset.t); }
      if (kind === "value" || kind === "margin") {
        return cell.dataset.v === undefined ? null : Number(cell.dataset.v.replace("inf", "Infinity"));
      }
      if (kind === "count") { var n = Number(cell.textContent.replace(/,/g, "")); return isNaN(n) ? null : n; }
      return cell.textContent.toLowerCase();
    };
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.textContent = "";
      head.appendChild(button);
      button.addEventListener("click", function () {
        var down = head.getAttribute("aria-sort") === "ascending";
        Array.prototype.forEach.call(table.tHead.rows[0].cells, function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        var keyed = rows.map(function (row, index) { return [keyOf(row, column, head.dataset.k), index, row]; });
        keyed.sort(function (a, b) {
          if (a[0] === b[0]) { return a[1] - b[1]; }
          if (a[0] === null) { return 1; }
          if (b[0] === null) { return -1; }
          return (a[0] < b[0] ? -1 : 1) * (down ? -1 : 1);
        });
        var fragment = document.createDocumentFragment();
        keyed.forEach(function (entry) { fragment.appendChild(entry[2]); });
        body.appendChild(fragment);
      });
    });
  }

  /* Timeline: a cursor that reads every series at one moment. */
  var source = document.querySelector("script.timeline-data");
  var figure = document.querySelector("figure.time");
  if (!source || !figure) { return; }
  var data = JSON.parse(source.textContent);
  var chart = figure.querySelector("svg.timeline");
  var cursor = chart.querySelector(".cursor");
  var readout = figure.querySelector(".readout");
  var holder = figure.querySelector(".scroll");
  var at = -1;

  function clock(seconds) {
    var h = Math.floor(seconds / 3600), m = Math.floor(seconds % 3600 / 60), s = seconds % 60;
    if (h) { return h + ":" + String(m).padStart(2, "0") + ":" + String(Math.floor(s)).padStart(2, "0"); }
    return m ? m + ":" + s.toFixed(0).padStart(2, "0") : s.toFixed(1) + " s";
  }
  function pick(series, bin) {
    for (var back = 0; back <= series.reach; back += 1) {
      var value = series.v[bin - back];
      if (value !== null && value !== undefined) { return value; }
    }
    return null;
  }
  function text(series, value) {
    if (series.unit !== "bits") { return value.toLocaleString("en-US") + (series.unit ? "\u00a0" + series.unit : ""); }
    return Object.keys(data.bits).filter(function (bit) { return value & Number(bit); })
      .map(function (bit) { return data.bits[bit]; }).join(", ");
  }
  function line(table, name, value) {
    var row = table.insertRow(), head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.appendChild(head);
    row.insertCell().textContent = value;
  }
  function show(bin) {
    at = Math.max(0, Math.min(data.bins - 1, bin));
    var seconds = (at + 0.5) / data.bins * data.length;
    var x = data.x[0] + (at + 0.5) / data.bins * (data.x[1] - data.x[0]);
    cursor.setAttribute("transform", "translate(" + x + " 0)");
    cursor.setAttribute("visibility", "visible");
    var table = document.createElement("table"), caption = table.createCaption();
    var where = data.windows.filter(function (w) { return seconds >= w[1] && seconds <= w[2]; });
    caption.textContent = clock(seconds) + (where.length ? " · " + where.map(function (w) { return w[0].replace(/_/g, " "); }).join(" · ") : "");
    data.series.forEach(function (series) {
      var value = pick(series, at);
      if (value !== null && (value !== 0 || (series.unit !== "bits" && series.unit !== ""))) { line(table, series.name, text(series, value)); }
    });
    readout.replaceChildren(table);
    readout.hidden = false;
    var scale = chart.getBoundingClientRect().width / data.width;
    var place = x * scale - holder.scrollLeft;
    var room = figure.clientWidth;
    var left = place + 16 + readout.offsetWidth > room ? place - readout.offsetWidth - 16 : place + 16;
    readout.style.left = Math.max(0, Math.min(room - readout.offsetWidth, left)) + "px";
  }
  function hide() { readout.hidden = true; cursor.setAttribute("visibility", "hidden"); at = -1; }
  function follow(event) {
    var box = chart.getBoundingClientRect();
    var x = (event.clientX - box.left) / box.width * data.width;
    if (x < data.x[0] || x > data.x[1]) { hide(); return; }
    show(Math.floor((x - data.x[0]) / (data.x[1] - data.x[0]) * data.bins));
  }
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("pointerleave", function (event) { if (event.pointerType === "mouse") { hide(); } });
  holder.addEventListener("blur", hide);
  holder.addEventListener("keydown", function (event) {
    var step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (event.key === "Escape") { hide(); return; }
    if (step === undefined) { return; }
    event.preventDefault();
    var next = at < 0 ? Math.floor(data.bins / 2) : at + step * (event.shiftKey ? 10 : 1);
    var x = (data.x[0] + next / data.bins * (data.x[1] - data.x[0])) * chart.getBoundingClientRect().width / data.width;
    if (x < holder.scrollLeft + 20 || x > holder.scrollLeft + holder.clientWidth - 20) {
      holder.scrollLeft = x - holder.clientWidth / 2;
    }
    show(next);
  });
})();
