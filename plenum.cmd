@echo off
rem The script `plenum` for Windows: runs Plenum under the Node.js that the project pins, whatever the host has.
where node >nul 2>nul || (
  echo Plenum needs Node.js 20.19, 22.12 or newer with npm 10 or newer; install it from https://nodejs.org. 1>&2
  exit /b 1
)
node "%~dp0tools\run.cjs" --max-semi-space-size=1 --optimize-for-size "%~dp0src\cli\main.ts" %*
exit /b %errorlevel%
