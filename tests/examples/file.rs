use std::env::var;

use deepgram::Deepgram;
use deepgram::common::audio_source::AudioSource;
use deepgram::common::options::Options;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Deepgram::with_base_url_and_api_key(var("SERVER")?.as_str(), var("KEY")?)?;
    let audio = AudioSource::from_buffer(std::fs::read(var("AUDIO")?)?);
    let options = Options::builder().smart_format(true).build();
    let response = client.transcription().prerecorded(audio, &options).await?;
    println!("{}", response.results.channels[0].alternatives[0].transcript);
    Ok(())
}
