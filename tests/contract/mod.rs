//! The contract as a table: every statement stands beside the check that can prove it wrong.
//!
//! A row is `row("4.1", "a statement in plain words", async |doors| …)`. Its check goes through a public door
//! of a running server ([`Doors`]) and panics where the statement does not hold. Sections are those of the
//! contract; `wire 3.2` is a section of the wire format that SDKs speak, and `decided` marks a point that the
//! contract leaves open and the documents settle.
//!
//! `cargo test --test integration contract` runs all rows and prints how many hold. `CONTRACT=4.2` in the
//! environment runs the sections that begin so.

mod agent;
mod authentication;
mod callbacks;
mod calls;
mod configuration;
mod demo;
mod doors;
mod errors;
mod limits;
mod live;
mod live_messages;
mod result;
mod sessions;
mod table;
mod transcription;
mod wire;

use std::collections::HashSet;
use std::io::Write as _;

use doors::Doors;
use table::Row;

/// Sections with statements that a server can be held to.
const SECTIONS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

fn rows() -> Vec<Row> {
    [
        result::rows(),
        transcription::rows(),
        callbacks::rows(),
        live::rows(),
        live_messages::rows(),
        sessions::rows(),
        agent::rows(),
        calls::rows(),
        demo::rows(),
        configuration::rows(),
        authentication::rows(),
        errors::rows(),
        limits::rows(),
        wire::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_of_the_contract_holds() {
    let mut rows = rows();
    if let Ok(section) = std::env::var("CONTRACT") {
        rows.retain(|row| row.section.starts_with(&section));
    }
    let doors = Doors::open().await;
    let broken = table::run(&rows, &doors).await;
    let mut report =
        format!("\ncontract: {} statements hold, {} do not\n", rows.len() - broken.len(), broken.len());
    for row in &broken {
        report.push_str(&format!("  {}: {}\n      {}\n", row.section, row.statement, row.problem));
    }
    // Past the test harness, which shows the output of failed tests alone.
    std::io::stdout().write_all(report.as_bytes()).expect("an open standard output");
    assert!(broken.is_empty(), "{report}");
}

#[test]
fn the_table_states_each_thing_once_and_leaves_no_section_out() {
    let rows = rows();
    let mut statements = HashSet::new();
    for row in &rows {
        assert!(
            statements.insert((row.section, row.statement)),
            "{}: {} is there twice",
            row.section,
            row.statement
        );
    }
    for section in SECTIONS {
        let is_of = |row: &Row| row.section == section || row.section.starts_with(&format!("{section}."));
        assert!(rows.iter().any(is_of), "no statement of section {section}");
    }
}
