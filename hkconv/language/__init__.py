"""Language: translation from parallel text to scores, and probes of what its encoders know of syntax."""
