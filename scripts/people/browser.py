"""A process with the console's page in Chromium, of the Python of `scripts/console.py`, which has the driver.

    browser.py paint ADDRESS     prints, as JSON, when the log-in page and the overview were seen and could be used
    browser.py hold ADDRESS      logs in, says "open" when the overview is there, and keeps it until its input ends

Times are of the page's own clock, which begins when it is asked for. A page has its first paint when Chromium first
draws content, and can be used once what it is for is there: the field of the name, or the first card.
"""

import contextlib
import json
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

# Of scripts/, whose console.py knows the flags of Chromium.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import console  # noqa: E402

NAME, CARD = "#name:enabled", ".cards .card"
# Notes when an element is first there, without asking for it again and again.
WATCH = """(() => {
  const look = () => { if (window.cleaveUsable === undefined && document.querySelector(%s))
    window.cleaveUsable = performance.now(); };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
})()"""
PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0 && window.cleaveUsable !== undefined"
TIMES = ("({ first_paint_s: performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000, "
         "interactive_s: window.cleaveUsable / 1000 })")


def main():
    what, address = sys.argv[1:]
    with sync_playwright() as driver, contextlib.closing(
            driver.chromium.launch(executable_path=console.CHROMIUM, args=console.FLAGS)) as browser:
        {"paint": paint, "hold": hold}[what](browser, address)


def paint(browser, address):
    context = browser.new_context(viewport=console.WIDE)
    page = seen_from(context, NAME)
    page.goto(address)
    times = {"log-in": times_of(page)}
    log_in(page)
    # In a context of its own, which has nothing of the server but the cookie.
    context = browser.new_context(viewport=console.WIDE, storage_state=context.storage_state())
    page = seen_from(context, CARD)
    page.goto(f"{address}/console/#overview")
    times["overview"] = times_of(page)
    print(json.dumps(times))


def hold(browser, address):
    page = browser.new_context(viewport=console.WIDE).new_page()
    page.goto(address)
    log_in(page)
    page.wait_for_selector(CARD)
    print("open", flush=True)
    sys.stdin.read()


def seen_from(context, selector):
    context.set_default_timeout(console.PATIENCE * 1000)
    page = context.new_page()
    page.add_init_script(WATCH % json.dumps(selector))
    return page


def times_of(page):
    # The page's policy forbids the evaluation that `wait_for_function` makes in it.
    console.wait_for(lambda: page.evaluate(PAINTED), "the page was not painted, or could not be used")
    return page.evaluate(TIMES)


def log_in(page):
    page.fill("#name", console.USER)
    page.press("#name", "Enter")
    page.wait_for_selector("nav a[aria-current=page]")


if __name__ == "__main__":
    main()
