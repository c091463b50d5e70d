"""What every handler must pass, built in or from a third party: models, cases, bounds, runner."""
