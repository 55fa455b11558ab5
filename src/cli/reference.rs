//! `verbatim completions SHELL` and `verbatim man [FOLDER]`: the command line for shells and manuals.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::Shell;

use super::output::print;

pub const COMPLETIONS_HELP: &str = "\
Where they go:
  bash        verbatim completions bash > ~/.local/share/bash-completion/completions/verbatim
  zsh         verbatim completions zsh > FOLDER/_verbatim, FOLDER being one of $fpath
  fish        verbatim completions fish > ~/.config/fish/completions/verbatim.fish
  powershell  verbatim completions powershell >> $PROFILE
  elvish      verbatim completions elvish >> ~/.config/elvish/rc.elv";

pub fn completions(mut command: clap::Command, shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "verbatim", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the program's manual page, or writes the pages of all commands to `folder`: `man -l verbatim-serve.1`.
pub fn manual(command: clap::Command, folder: Option<&Path>) -> anyhow::Result<ExitCode> {
    match folder {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print(&String::from_utf8(page)?)?;
        }
        Some(folder) => {
            let write = || {
                std::fs::create_dir_all(folder)?;
                clap_mangen::generate_to(command, folder)
            };
            write().with_context(|| folder.display().to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
