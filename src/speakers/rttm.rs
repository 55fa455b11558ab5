//! Turns as RTTM, the format in which evaluations of diarization exchange them (NIST, *The 2009 (RT-09) Rich
//! Transcription Meeting Recognition Evaluation Plan*, appendix A).

use std::fmt::Write;

use super::diarize::Diarization;

impl Diarization {
    /// A line for each turn: `SPEAKER FILE 1 START SECONDS <NA> <NA> speaker0 CONFIDENCE <NA>`. In `file`, spaces and
    /// control characters, which would end its field, become `_`.
    pub fn rttm(&self, file: &str) -> String {
        let file = file.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        let mut output = String::new();
        for turn in &self.turns {
            let seconds = (turn.end - turn.start).max(0.0);
            // Writing to a String cannot fail.
            let _ = writeln!(
                output,
                "SPEAKER {file} 1 {:.3} {seconds:.3} <NA> <NA> speaker{} {:.3} <NA>",
                turn.start, turn.speaker, turn.confidence
            );
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::super::diarize::Turn;
    use super::*;

    #[test]
    fn each_turn_is_a_line_of_ten_fields() {
        let turn = |speaker, start, end| Turn { speaker, start, end, confidence: 0.75 };
        let turns = vec![turn(0, 0.0, 1.5), turn(1, 1.25, 3.0)];
        let rttm = Diarization { turns, ..Diarization::default() }.rttm("my call");
        assert_eq!(
            rttm,
            "SPEAKER my_call 1 0.000 1.500 <NA> <NA> speaker0 0.750 <NA>\n\
             SPEAKER my_call 1 1.250 1.750 <NA> <NA> speaker1 0.750 <NA>\n"
        );
        assert!(rttm.lines().all(|line| line.split(' ').count() == 10));
        assert_eq!(Diarization::default().rttm("a"), "");
    }
}
