use super::*;

/// Headings and text of each section.
fn sections(html: &str) -> Vec<(String, String)> {
    let sections = read(html).sections.into_iter();
    sections.map(|section| (section.headings.join(" > "), section.text)).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(heading, text)| ((*heading).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_page_becomes_its_text() {
    let page = read(
        "<!doctype html><html><head><title>Acme &amp; Sons</title><style>p{color:red}</style>\
         <script>if (a < b) { document.write('<p>no</p>'); }</script></head><body>\
         <nav><a href='/hours'>Hours</a></nav><h1>Welcome</h1><p>We are open\n from <b>nine</b> to&nbsp;five.</p>\
         <table><tr><td>Monday</td><td>9&ndash;17</td></tr></table><p>Bye<br>now <a rel=nofollow href='/x'>x</a> <a href=\"more.html?a=1&amp;b=2\">more</a><footer>© Acme</footer>",
    );
    assert_eq!(page.title, "Acme & Sons");
    assert_eq!(page.text(), "Welcome\nWe are open from nine to five.\nMonday: 9–17\nBye\nnow x more");
    assert_eq!(page.links, ["/hours", "more.html?a=1&b=2"]);
    assert!(!page.is_excluded);
}

#[test]
fn whatever_comes_is_read() {
    for html in [
        "",
        "<",
        "<p",
        "</p></p>",
        "<nav><nav></nav>a",
        "<title>",
        "&#xFFFFFFFF;",
        "<a href>",
        "\0",
        "<td>a<tr>b</table></table><table><td><table><th>c<h2>d<td>e<dl><dt>f<table><dd>g</h2>",
        "<dd>a<dt>b<dt>c</dl></dl><dt><dd><h1><dt><summary><caption></details>",
        "<h1><h2></h1></h2><h6>x</h1>",
    ] {
        read(html);
    }
    assert!(read("<meta name=ROBOTS content='NoIndex, follow'>").is_excluded);
    assert_eq!(read("<nav><div></nav>kept").text(), "kept");
    // Nothing is lost where tags are closed by what comes next.
    let text = read("<table><tr><td>a<td>b<tr><td>c<h2>d</h2>e</table>f<dl><dt>g<dd>h<dt>i</dl>j").text();
    for word in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn headings_stand_apart_from_what_they_head() {
    let html = "<body><header><h1>Acme</h1><nav>Home</nav></header><main>\
        <article><header><h1>Visit us</h1></header><p>All are welcome.</p>\
        <h2>Opening <em>hours</em></h2>We are open from nine to five.\
        <h3>Saturday</h3><div>From ten to two.</div>\
        <h2><div>Parking</div></h2><p>Parking is free.</p></article></main>\
        <h2>Free coffee in the lobby<p>Ask for it.</p></h2><h2></h2><h3>Nothing more</h3>";
    assert_eq!(
        sections(html),
        pairs(&[
            ("Visit us", "All are welcome."),
            ("Visit us > Opening hours", "We are open from nine to five."),
            ("Visit us > Opening hours > Saturday", "From ten to two."),
            ("Visit us > Parking", "Parking is free."),
            ("Visit us > Free coffee in the lobby", "Ask for it."),
            ("Visit us > Free coffee in the lobby", "Nothing more"),
        ])
    );
    let long = "word ".repeat(60);
    assert_eq!(sections(&format!("<h2>{long}</h2>")), pairs(&[("", long.trim())]));
}

#[test]
fn rows_say_what_their_cells_are() {
    let prices = "<h2>Prices</h2><table><thead><tr><th>Service</th><th>Price</th><th>VAT</th></tr></thead>\
        <tbody><tr><td>Cleaning</td><td>$90</td><td>7%</td></tr><tr><td>Filling<td>$150<td></tr></tbody></table>";
    assert_eq!(sections(prices), pairs(&[("Prices", "Cleaning: price $90, VAT 7%\nFilling: price $150")]));
    let hours = "<table><caption>Opening hours</caption><tr><th>Monday</th><td>9 to 5<br>6 to 8</td></tr>\
        <tr><th>Sunday:</th><td>closed</td></tr></table><p>Ring the bell.</p>";
    assert_eq!(
        sections(hours),
        pairs(&[("Opening hours", "Monday: 9 to 5, 6 to 8\nSunday: closed"), ("", "Ring the bell.")])
    );
    let numbers = "<table><tr><th>Room<th>Beds<tr><td>Rose<td>2</table>";
    assert_eq!(sections(numbers), pairs(&[("", "Rose: beds 2")]));
    // A table that only places things.
    let layout = "<table><tr><td><h2>Hours</h2><p>We are open.</p></td><td><p>Call us.</p><p>Write to us.</p></td></tr></table>";
    assert_eq!(sections(layout), pairs(&[("Hours", "We are open.\nCall us. Write to us.")]));
    assert_eq!(sections("<table><tr><th>One<th>Two</table>"), pairs(&[("", "One, Two")]));
}

#[test]
fn lists_breaks_and_definitions_are_lines_of_their_own() {
    let list = "<h3>We treat</h3><ul><li>Cats<li>Dogs<ul><li>also large ones</ul></ul>and more";
    assert_eq!(sections(list), pairs(&[("We treat", "Cats\nDogs\nalso large ones\nand more")]));
    let address = "<p><b>Opening hours</b><br>We are open<br>daily.<br/>12 Main Street<br>Springfield</p>";
    assert_eq!(
        sections(address),
        pairs(&[("", "Opening hours\nWe are open daily.\n12 Main Street\nSpringfield")])
    );
    let terms = "<dl><dt>Monday</dt><dd>9 to 5</dd><dt>Saturday<dt>Sunday<dd>closed<dd>but call us</dl>";
    assert_eq!(sections(terms), pairs(&[("", "Monday: 9 to 5\nSaturday, Sunday: closed\nbut call us")]));
    let questions = "<h2>FAQ</h2><dl><dt>Do you take walk-ins?</dt><dd>Yes, before noon.</dd></dl>\
        <details><summary>How do I book?</summary><p>Call us.</p></details><p>More soon.</p>";
    assert_eq!(
        sections(questions),
        pairs(&[
            ("FAQ > Do you take walk-ins?", "Yes, before noon."),
            ("FAQ > How do I book?", "Call us."),
            ("FAQ", "More soon."),
        ])
    );
    assert_eq!(sections("<pre>one\ntwo</pre>three\nfour"), pairs(&[("", "one\ntwo\nthree four")]));
}

#[test]
fn a_page_that_means_harm_is_read_in_time() {
    for (piece, count) in [
        ("<table><tr><td>", 100_000),
        ("<table><h2>a</h2>", 100_000),
        ("<dl><dt>a?<dd>b", 100_000),
        ("<h1>a<h2>b<h3>c<h4>d<h5>e<h6>f</h6>g", 50_000),
        ("<details><summary>a</summary>b", 60_000),
        ("<br>a", 200_000),
    ] {
        let page = read(&piece.repeat(count));
        // The tag itself is longer than what is kept of it.
        assert!(page.text().len() < 2 * piece.len() * count, "{piece}");
    }
}

#[test]
fn menus_are_followed_and_not_read() {
    let page = read(
        "<div role=navigation><a href=/a>A</a><a href=/b>B</a></div><div><a href=/c>Home</a><a href=/d>About</a></div>\
         <p>See <a href=/e>here</a>.</p>",
    );
    assert_eq!(page.links, ["/a", "/b", "/c", "/d", "/e"]);
    assert_eq!(page.text(), "Home\nAbout\nSee here.");
}
