"""`python -m blindbayes`."""

from blindbayes.cli import main

main()
