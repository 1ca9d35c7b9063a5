"""The mails that tell how requests ended."""
