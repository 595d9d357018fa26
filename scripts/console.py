#!/usr/bin/env python3
"""Tests the console of `cleave serve` in a real Chromium, and makes the pictures of its documentation.

    scripts/console.py self-test                          everything a user does, wide and as wide as a phone
    scripts/console.py self-test --pictures docs/console  the same, and writes the pictures

Needs CLEAVE_BINARY or a build. Chromium is that of CHROMIUM, /usr/bin/chromium or its headless shell, which comes with
apt-get (root or sudo) where there is none; its driver comes with pip into target/console. Where they cannot be
installed it says SKIPPED and succeeds.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import servers

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "target" / "console"
# The smaller package.
HEADLESS_SHELL = "chromium-headless-shell"
CHROMIUMS = ["/usr/bin/chromium", f"/usr/bin/{HEADLESS_SHELL}"]
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(os.path.exists, CHROMIUMS), CHROMIUMS[-1])
# Pinned: a new release of it is no reason for a failure here.
DRIVER = "playwright==1.65.2"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]
USER, PASSWORD = "ada", "a pencil"
# As wide as a small phone.
PHONE = {"width": 360, "height": 740}
WIDE = {"width": 1200, "height": 800}
PICTURE_BYTES_MAX = 150_000
# Those that the documentation shows.
PICTURES = ["overview", "results", "plan", "devices", "overview-phone", "plan-phone"]
# Would be seen in the page's window if the page took it for markup.
EVIL = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>"
# Seconds that a page has to show what it is to show.
PATIENCE = 120
# Seconds of all of it; a browser that hangs is no reason for CI to hang.
TIME_MAX = 600
QUERY = ("SELECT k.kind, count(*) AS films, min(f.title) AS first "
         "FROM film f JOIN kind k ON k.id = f.kind_id WHERE f.title LIKE '%7%' GROUP BY k.kind ORDER BY films DESC")
# By their addresses, with what is there once they have shown what they are to show.
SECTIONS = {"overview": "#running article", "query": "#sql", "devices": "main table", "locks": "main table",
            "sessions": "main table", "more/tables": "main table"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    test = commands.add_parser("self-test")
    test.add_argument("--pictures", type=Path, help="a folder to write the pictures of the documentation to")
    options = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        again()
        return
    binary = servers.cleave()
    if binary is None:
        sys.exit("build `cleave` first, or set CLEAVE_BINARY")
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(TIME_MAX)
    with tempfile.TemporaryDirectory() as folder, running(binary, Path(folder)) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            self_test(browser, address, options.pictures)
        finally:
            browser.close()
    print("the console does what it is to do")


def too_long(number, _frame):
    # What it has started is stopped on the way out, if that does not hang as well.
    signal.signal(number, signal.SIG_DFL)
    signal.alarm(90)
    raise TimeoutError(f"the console was not tested within {TIME_MAX} s")


def again():
    """Runs this again by a Python that has the driver, once Chromium is there."""
    if not Path(CHROMIUM).exists():
        install_chromium()
    if not Path(CHROMIUM).exists():
        print("SKIPPED: Chromium cannot be installed")
        return
    python = servers.python_with([DRIVER], "import playwright.sync_api", PLACE)
    if python is None:
        print("SKIPPED: the driver of Chromium cannot be installed")
        return
    sys.exit(subprocess.run([python, *sys.argv]).returncode)


def install_chromium():
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    # Others may be installing, too.
    apt = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    install = [*apt, "install", "-y", "--no-install-recommends", HEADLESS_SHELL]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # The lists are read again only if they are old: that has a lock which nobody waits for.
        if subprocess.run(install, capture_output=True, timeout=600).returncode != 0:
            subprocess.run([*apt, "update"], capture_output=True, timeout=300)
            subprocess.run(install, capture_output=True, timeout=600)


@contextlib.contextmanager
def running(binary, folder):
    """A server of a small database, half of it on a device in a process of its own; the address of its console."""
    database, socket = folder / "films", folder / "nas.sock"
    servers.output([binary, "sql", "--create", "--db", database, "-c", "SELECT 1"])
    with contextlib.ExitStack() as started:
        device = subprocess.Popen([str(part) for part in [binary, "device-process", "--media", folder / "nas.media",
                                                          "--local", socket]], stderr=subprocess.DEVNULL)
        started.callback(servers.stop, device)
        wait_for(socket.exists, "the device does not listen")
        servers.output([binary, "device", "add", "nas", "--local", socket, "--db", database])
        servers.output([binary, "sql", "--db", database, "-c", tables()])
        servers.output([binary, "user", "add", USER, "--db", database], input=PASSWORD + "\n")
        port = servers.free_port()
        process, _ = servers.serve(binary, database, "--console", f"127.0.0.1:{port}")
        started.callback(servers.stop, process)
        yield f"http://127.0.0.1:{port}"


def tables():
    evil = EVIL.replace("'", "''")
    name = EVIL.replace('"', '""')[:60]
    return ("SET default_device = nas; "
            "CREATE TABLE kind (id int PRIMARY KEY, kind text) WITH (device = embedded); "
            "INSERT INTO kind VALUES (0, 'movie'), (1, 'episode'), (2, 'video'), (3, 'short'); "
            "CREATE TABLE film (id int PRIMARY KEY, title text, kind_id int); "
            "INSERT INTO film SELECT n, 'Film no. ' || n, n % 4 FROM generate_series(1, 100000) AS s (n); "
            f"CREATE TABLE \"{name}\" (\"<b>bold</b>\" text); INSERT INTO \"{name}\" VALUES ('{evil}'); "
            "ANALYZE")


def wait_for(check, what):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(what)


def self_test(browser, address, pictures):
    refuses_others(address)
    for viewport, scheme in [(WIDE, "light"), (PHONE, "dark")]:
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        context.set_default_timeout(PATIENCE * 1000)
        page, asked, faults = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if is_fault(message) else None)
        visit(page, address, viewport, pictures)
        others = [url for url in asked if urlsplit(url).netloc != urlsplit(address).netloc]
        assert not others, f"the page asks other servers: {others}"
        assert not faults, f"the page has faults: {faults}"
        context.close()


def is_fault(message):
    # An answer that refuses is no fault of the page.
    return message.type == "error" and "Failed to load resource" not in message.text


def refuses_others(address):
    """What a page of another site could send is refused, also with a browser's cookies."""
    body = b'{"user": "ada", "password": "a pencil"}'
    for headers in [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}]:
        headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{address}/api/login", body, headers)
        try:
            urllib.request.urlopen(request, timeout=PATIENCE)
            raise AssertionError(f"{headers} was answered")
        except urllib.error.HTTPError as error:
            assert error.code == 403, (headers, error.code)


def visit(page, address, viewport, pictures):
    began = time.monotonic()
    page.goto(address)
    page.wait_for_selector("#name")
    print(f"first page after {(time.monotonic() - began) * 1000:.0f} ms, {viewport['width']} pixels wide")
    log_in(page)
    overview(page)
    query(page, viewport, pictures)
    changes_have_lanes(page)
    for section, shown in SECTIONS.items():
        page.goto(f"{address}/console/#{section}")
        page.wait_for_selector(f"nav a[aria-current=page][href='#{section.split('/')[0]}']")
        page.wait_for_selector(shown)
        if pictures:
            page.wait_for_timeout(1200)
        fits(page, section)
        picture(page, viewport, pictures, section.split("/")[0])
    names_are_harmless(page)
    sessions_end(page)
    forged(page)
    schemes(page)
    page.click("#log-out")
    page.wait_for_selector("#name")
    status = page.evaluate("fetch('/api/view/tables').then((answer) => answer.status)")
    assert status == 401, f"logged out, and answered with {status}"


def log_in(page):
    """By the keyboard alone, the first time with a wrong password."""
    page.keyboard.type(USER)
    page.keyboard.press("Tab")
    page.keyboard.type("a crayon")
    page.keyboard.press("Enter")
    page.wait_for_selector(".error")
    assert "28P01" in page.inner_text(".error")
    # The field of the password has the focus again.
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav a[aria-current=page]")
    cookies = page.context.cookies()
    assert all(cookie["httpOnly"] and cookie["sameSite"] == "Strict" for cookie in cookies) and cookies, cookies


def overview(page):
    page.wait_for_selector(".cards .card")
    for role in ["banner", "navigation", "main", "contentinfo", "status"]:
        assert page.get_by_role(role).count() >= 1, f"there is no {role}"
    # The first stop of the keyboard leads past the navigation.
    page.reload()
    page.wait_for_selector("nav a[aria-current=page]")
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == "Skip to the content", focused
    fits(page, "overview")


def query(page, viewport, pictures):
    go(page, "query")
    page.fill("#sql", "SELECT * FROM fil")
    page.focus("#sql")
    page.keyboard.press("Control+ ")
    page.wait_for_selector("#choices li")
    page.keyboard.press("Enter")
    assert page.input_value("#sql") == "SELECT * FROM film", page.input_value("#sql")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#results table")
    assert page.locator("#results tbody tr").count() == 100, "a page of a result has 100 rows"
    page.click("text=Next rows")
    page.wait_for_selector("text=rows 101 to 200")
    # The embedded device shares the host's memory, so that nothing would run there by itself.
    page.fill("#sql", "SET split = h1")
    page.click("#run")
    page.wait_for_selector("#results:has-text('SET')")
    page.fill("#sql", QUERY)
    page.click("#run")
    page.wait_for_selector("#results caption:has-text('4 rows')")
    page.click("#results button:has-text('Chart')")
    page.wait_for_selector(".chart svg")
    fits(page, "results")
    picture(page, viewport, pictures, "results")
    page.click("#explain")
    page.wait_for_selector(".plan svg")
    fits(page, "plan")
    page.click("#analyze")
    page.wait_for_selector(".timeline svg")
    candidates = page.locator("button[aria-label^='Run with split']")
    assert candidates.count() > 1, "there are no candidate splits"
    split = candidates.nth(1).get_attribute("aria-label")
    candidates.nth(1).click()
    page.wait_for_selector(f"h2:has-text('{split.removeprefix('Run with ')}')")
    assert page.locator(".node.device").count() + page.locator(".node.host").count() > 2
    fits(page, "timeline")
    picture(page, viewport, pictures, "plan")
    page.fill("#sql", "RESET split")
    page.click("#run")
    page.wait_for_selector("#results:has-text('RESET')")
    page.fill("#sql", "SELECT nothing FROM film")
    page.click("#run")
    page.wait_for_selector("#results .error")
    assert "42703" in page.inner_text("#results .error")
    # A statement that runs is seen, and cancelled.
    page.fill("#sql", "SELECT pg_sleep(600)")
    page.click("#run")
    page.wait_for_selector("#results[aria-busy=true]")
    page.click("button:has-text('Cancel'):enabled")
    page.wait_for_selector("#results .error:has-text('57014')")


def changes_have_lanes(page):
    """An update that a device runs is among the statements that have ended, with what the device did."""
    go(page, "query")
    for sql, answer in [("SET update_placement = device", "SET"),
                        ("UPDATE film SET title = title || '.' WHERE id % 2 = 0", "UPDATE 50000"),
                        ("RESET update_placement", "RESET")]:
        page.fill("#sql", sql)
        page.click("#run")
        page.wait_for_selector(f"#results:has-text('{answer}')")
    go(page, "overview")
    page.wait_for_selector("article.over:has-text('UPDATE film') .timeline:has-text('device worked')")


def names_are_harmless(page):
    go(page, "more/tables")
    page.wait_for_selector("td:has-text('onerror')")
    go(page, "query")
    page.fill("#sql", f"SELECT *, '{EVIL}' AS \"{EVIL.replace(chr(34), chr(34) * 2)[:60]}\" FROM film LIMIT 2")
    page.click("#run")
    page.wait_for_selector("#results td:has-text('onerror')")
    page.click("#analyze")
    page.wait_for_selector(".plan svg")
    go(page, "sessions")
    page.wait_for_selector("td:has-text('onerror')")
    page.wait_for_timeout(300)
    assert page.evaluate("window.hit") is None, "a name became markup"
    assert page.locator("main img, main script").count() == 0


def sessions_end(page):
    """Ends a session of another log-in, which then gets a new one."""
    go(page, "sessions")
    page.wait_for_selector("tbody tr")
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("button[aria-label^='End session'] >> nth=0")
    page.wait_for_selector("#status:has-text('was told to end')")
    page.wait_for_selector("main caption:has-text('0 sessions')")


def forged(page):
    """A request with the cookie and without the token is refused."""
    status = page.evaluate("""fetch('/api/query', {
        method: 'POST', headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ sql: 'CREATE TABLE forged (a int)' }),
    }).then((answer) => answer.status)""")
    assert status == 403, status


def schemes(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.click("#theme")
    after = page.evaluate(colour)
    assert before != after, "the switch of colours changes nothing"
    page.reload()
    page.wait_for_selector("nav a[aria-current=page]")
    assert page.evaluate(colour) == after, "the choice of colours is forgotten"
    page.click("#theme")


def go(page, section):
    page.evaluate(f"location.hash = '{section}'")
    page.wait_for_selector("main h1")


def fits(page, what):
    inner, outer = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert inner <= outer, f"{what} is {inner} pixels wide in a window of {outer}"


def picture(page, viewport, pictures, name):
    name += "-phone" if viewport is PHONE else ""
    if pictures is None or name not in PICTURES:
        return
    pictures.mkdir(parents=True, exist_ok=True)
    path = pictures / f"{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    assert size <= PICTURE_BYTES_MAX, f"{path} has {size} bytes"


if __name__ == "__main__":
    main()
