//! The material an agent answers from: instructions, documents and a website, cut into passages and ranked for
//! each question.
//!
//! ```text
//! Sources ─▶ Library ─ documents, crawl ─▶ html, sections ─▶ Passage ─▶ Knowledge (rank) ─▶ hits
//! ```

mod config;
mod crawl;
mod html;
mod library;
mod passage;
mod rank;
mod reader;
mod robots;
mod search;
mod sections;
mod sources;
mod table;

pub use config::Config;
pub use crawl::CrawlError;
pub use library::{Library, unread_website};
pub use passage::{Passage, indexed_bytes, passages, sentences};
pub use rank::terms;
pub use search::{Knowledge, Rationed};
pub use sources::{Content, Document, Sources};
