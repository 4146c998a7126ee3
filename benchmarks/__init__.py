"""What agentcore costs, beside hand-written loops, in one run."""
