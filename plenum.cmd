@echo off
rem The script `plenum` for Windows: runs Plenum under the Node.js that the project pins, whatever the host has.
where node >nul 2>nul || (
  echo Plenum needs Node.js 20.19, 22.12 or newer with npm 10 or newer; install it from https://nodejs.org. 1>&2
  exit /b 1
)
rem What the memory of a worker may be traded for is measured in docs/sizing.md; for another size say other flags here.
if not defined PLENUM_NODE_FLAGS set "PLENUM_NODE_FLAGS=--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring"
node "%~dp0tools\run.cjs" %PLENUM_NODE_FLAGS% "%~dp0src\cli\main.ts" %*
exit /b %errorlevel%
