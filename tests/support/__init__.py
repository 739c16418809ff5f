"""What several tests share: fake distributions, the command line as a process, small configurations."""
