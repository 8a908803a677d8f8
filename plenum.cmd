@echo off
rem Runs Plenum on Windows under the Node.js version that the project pins, like the script `plenum` elsewhere.
where node >nul 2>nul || (
  echo Plenum needs Node.js 20.19, 22.12 or newer with npm 10 or newer; install it from https://nodejs.org. 1>&2
  exit /b 1
)
rem V8 flags that limit the worker's memory; docs/sizing.md shows the measurements. Set PLENUM_NODE_FLAGS to replace them.
if not defined PLENUM_NODE_FLAGS set "PLENUM_NODE_FLAGS=--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring"
node "%~dp0tools\run.cjs" %PLENUM_NODE_FLAGS% "%~dp0src\cli\main.ts" %*
exit /b %errorlevel%
