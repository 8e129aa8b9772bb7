"""Each paper's experiment, regenerated: theirs beside ours."""
