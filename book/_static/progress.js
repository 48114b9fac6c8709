/* Which pages somebody has read to the end: remembered in their own browser, shown by a mark in the table of contents.
 *
 * Nothing is sent anywhere. Where a browser keeps nothing (private windows), nothing is shown.
 */
"use strict";

(function () {
  const KEY = "lessons-read";

  function read() {
    try {
      return new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
    } catch {
      return new Set();
    }
  }

  function keep(pages) {
    try {
      localStorage.setItem(KEY, JSON.stringify([...pages].sort()));
    } catch {
      // then it is not kept
    }
  }

  /* A page's name wherever the site lies: chapters/04_masks.html. */
  function nameOf(address) {
    const root = new URL(document.documentElement.dataset.content_root ?? ".", location.href).pathname;
    const path = new URL(address, location.href).pathname;
    return path.startsWith(root) ? path.slice(root.length) : path;
  }

  function show() {
    const pages = read();
    for (const link of document.querySelectorAll(".bd-sidebar-primary .bd-links a[href]")) {
      const isRead = pages.has(nameOf(link.href));
      const mark = link.querySelector(".lessons-read");
      if (isRead && !mark) {
        const made = document.createElement("span");
        made.className = "lessons-read";
        made.textContent = " ✓";
        made.title = "read";
        link.append(made);
      } else if (!isRead) mark?.remove();
    }
    const list = document.querySelector(".bd-sidebar-primary .bd-links");
    list?.querySelector(".lessons-forget")?.remove();
    if (!pages.size || !list) return;
    const button = document.createElement("button");
    button.className = "lessons-forget btn btn-sm";
    button.textContent = `Forget the ${pages.size === 1 ? "page" : `${pages.size} pages`} I have read`;
    button.addEventListener("click", () => {
      keep(new Set());
      show();
    });
    list.append(button);
  }

  /* At the top of a page no section is being read; the theme's contents would go on naming the last one. */
  function clearContents() {
    if (scrollY > 100) return;
    document.querySelectorAll(".bd-sidebar-secondary .active").forEach((one) => one.classList.remove("active"));
  }

  addEventListener("scroll", () => setTimeout(clearContents, 100), { passive: true }); // after the theme's own answer

  addEventListener("load", () => {
    show();
    const end = document.querySelector(".prev-next-footer");
    if (!end || !document.querySelector(".bd-article")) return;
    new IntersectionObserver((entries, observer) => {
      // A page that is shorter than the screen shows its end at once: then being there a while counts.
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      setTimeout(() => {
        keep(read().add(nameOf(location.href)));
        show();
      }, 1000);
    }).observe(end);
  });
})();
