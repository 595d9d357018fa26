//! Traces of statements and their fragments, sent by OpenTelemetry's protocol.
