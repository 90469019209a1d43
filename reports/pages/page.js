/* Sorting of tables, and tips for charts by pointer and by keyboard: arrow keys walk over the marks
   of a chart that has the focus. The page says everything without it too. */
'use strict';
(function () {
	var each = function (list, f) { Array.prototype.forEach.call(list, f); };

	each(document.querySelectorAll('table.sortable'), function (table) {
		var body = table.tBodies[0], heads = table.tHead.rows[0].cells;
		each(heads, function (head, i) {
			head.firstElementChild.addEventListener('click', function () {
				var up = head.getAttribute('aria-sort') !== 'ascending';
				each(heads, function (h) { h.removeAttribute('aria-sort'); });
				head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
				function key(row) {
					var cell = row.cells[i], n = parseFloat(cell.dataset.sort);
					if (!isNaN(n)) return n;
					return cell.dataset.sort === 'inf' ? Infinity : cell.textContent;
				}
				Array.prototype.slice.call(body.rows).sort(function (a, b) {
					var x = key(a), y = key(b);
					return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
				}).forEach(function (row) { body.appendChild(row); });
			});
		});
	});

	function hint() {
		each(document.querySelectorAll('.scroll'), function (box) {
			box.classList.remove('more');
			box.classList.toggle('more', box.scrollWidth > box.clientWidth + 1);
		});
	}
	hint();
	window.addEventListener('resize', hint);
	each(document.querySelectorAll('details'), function (d) {
		d.addEventListener('toggle', hint);
	});

	/* The browser's own tips are slow and know no keyboard: the words move into an attribute. */
	var tip = document.createElement('div'), at = null, keyed = false;
	tip.className = 'tip';
	tip.hidden = true;
	tip.setAttribute('role', 'status');
	document.body.appendChild(tip);
	each(document.querySelectorAll('figure svg title'), function (title) {
		title.parentNode.tip = title.textContent;
	});

	function hide() {
		if (at) at.classList.remove('at');
		at = null;
		tip.hidden = true;
	}

	function show(mark, x, y) {
		if (at !== mark) {
			hide();
			at = mark;
			mark.classList.add('at');
			tip.textContent = mark.tip;
			each(mark.querySelectorAll('title'), function (t) { t.remove(); });
		}
		tip.hidden = false;
		var box = tip.getBoundingClientRect(), width = document.documentElement.clientWidth;
		tip.style.left = Math.max(4, Math.min(x + 14, width - box.width - 6)) + 'px';
		tip.style.top = (y + 18 + box.height > window.innerHeight ? y - box.height - 10 : y + 18) +
			'px';
	}

	document.addEventListener('pointermove', function (event) {
		var mark = event.target;
		keyed = false;
		if (mark && mark.tip) show(mark, event.clientX, event.clientY);
		else if (at) hide();
	});
	document.addEventListener('scroll', function () { if (!keyed) hide(); }, true);

	each(document.querySelectorAll('figure svg[tabindex]'), function (svg) {
		var area = svg.parentNode, i = -1;
		svg.addEventListener('blur', hide);
		svg.addEventListener('keydown', function (event) {
			var marks = Array.prototype.filter.call(area.querySelectorAll('path'),
				function (p) { return p.tip; });
			var step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
			if (event.key === 'Escape') hide();
			if (!step || !marks.length) return;
			event.preventDefault();
			keyed = true;
			i = Math.max(0, Math.min(marks.length - 1, i + step));
			var box = marks[i].getBoundingClientRect();
			show(marks[i], box.left + box.width / 2, Math.max(0, box.top));
		});
	});

	/* On paper nothing can be opened. */
	window.addEventListener('beforeprint', function () {
		each(document.querySelectorAll('details'), function (d) { d.open = true; });
	});
}());
