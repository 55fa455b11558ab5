//! The material an agent answers from: instructions, documents and a website, cut into passages and ranked for
//! each question.
//!
//! ```text
//! Sources ─▶ Library ─ documents, crawl ─▶ html, sections ─▶ Passage ─▶ Knowledge (rank) ─▶ hits ─▶ answer
//!                                                   Question (lexicon, Fact) ─┘──────────────────────┘
//! ```

mod answer;
mod config;
mod crawl;
mod fact;
mod html;
mod lexicon;
mod library;
mod passage;
mod question;
mod rank;
mod reader;
mod robots;
mod search;
mod sections;
mod sources;
mod table;

pub use config::Config;
pub use crawl::CrawlError;
pub use lexicon::{terms, ways};
pub use library::{Library, unread_website};
pub use passage::{Passage, indexed_bytes, passages, sentences};
pub use search::{Knowledge, Rationed};
pub use sources::{Content, Document, Sources};
