//! `--grpc_channel_arguments`: settings of gRPC connections, as `key=value` pairs with commas
//! between them.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The settings that mean something here. Others are accepted, as gRPC does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChannelArguments {
    /// When a connection is told to end.
    pub(crate) connection_age: Option<Duration>,
    /// How long its requests are then given.
    pub(crate) connection_age_grace: Option<Duration>,
    /// How often a silent connection is asked whether it is still there.
    pub(crate) keepalive_interval: Option<Duration>,
    /// How long it may take to say so.
    pub(crate) keepalive_timeout: Option<Duration>,
    /// How many calls of one connection run at once.
    pub(crate) streams_max: Option<u32>,
    /// The most bytes of a message.
    pub(crate) message_bytes_max: Option<usize>,
    /// The most bytes of a call's headers.
    pub(crate) header_bytes_max: Option<u32>,
}

/// Reads the flag, and names the keys that change nothing.
pub(crate) fn parse(text: &str) -> Result<(ChannelArguments, Vec<String>)> {
    let mut arguments = ChannelArguments::default();
    let mut ignored = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .with_context(|| format!("--grpc_channel_arguments: {pair} is no key=value"))?;
        // Below zero means without limit, as for gRPC.
        let number = value.trim().parse::<i32>().ok().and_then(|value| u32::try_from(value).ok());
        let time = number.map(|number| Duration::from_millis(number.into()));
        match key.trim() {
            "grpc.max_connection_age_ms" => arguments.connection_age = time,
            "grpc.max_connection_age_grace_ms" => arguments.connection_age_grace = time,
            "grpc.keepalive_time_ms" => arguments.keepalive_interval = time,
            "grpc.keepalive_timeout_ms" => arguments.keepalive_timeout = time,
            "grpc.max_concurrent_streams" => arguments.streams_max = number,
            "grpc.max_receive_message_length" => {
                arguments.message_bytes_max = number.and_then(|number| number.try_into().ok());
            }
            "grpc.max_metadata_size" => arguments.header_bytes_max = number,
            other => ignored.push(other.to_owned()),
        }
    }
    Ok((arguments, ignored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_arguments_are_taken_and_others_named() {
        let text = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb,\
                    grpc.so_reuseaddr=1,grpc.max_receive_message_length=-1";
        let (arguments, ignored) = parse(text).unwrap();
        let connection_age = Some(Duration::from_secs(2));
        assert_eq!(arguments, ChannelArguments { connection_age, ..ChannelArguments::default() });
        assert_eq!(ignored, ["grpc.lb_policy_name", "grpc.so_reuseaddr"]);
        assert_eq!(parse("").unwrap(), (ChannelArguments::default(), Vec::new()));
    }

    #[test]
    fn an_argument_without_a_value_is_refused() {
        let error = parse("grpc.so_reuseaddr").unwrap_err();
        assert!(error.to_string().contains("grpc.so_reuseaddr is no key=value"));
    }
}
