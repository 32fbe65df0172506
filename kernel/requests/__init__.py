"""What a request asks of each draw, and what its caller gets back: values, no actor."""
