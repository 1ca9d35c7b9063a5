// Secrets of the processes. They are read with the identity, inside the network.
param location string
param name string
param principalId string
param workspaceId string
param endpointSubnetId string
param networkId string
@secure()
param signingSecret string
@secure()
param smtpPassword string
@secure()
param oidcClientSecret string
@secure()
param earthdataToken string

@description('Leave a secret as it is in the vault when none is given here.')
param keepSecrets bool

@description('Take over the vault of this name that was deleted with its group: its name is kept for 90 days.')
param recoverVault bool

@description('Object id of the group that may read and renew the secrets, from inside the network; empty: nobody.')
param operators string

@description('Built-in role Key Vault Secrets Officer.')
var secretsOfficerRole = 'b86a8fe4-44ce-4948-aee5-eccb2c155cd7'

@description('Built-in role Key Vault Secrets User.')
var secretsUserRole = '4633458b-17de-408a-b874-0445c86b69e6'

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  name: '${name}${uniqueString(resourceGroup().id)}'
  location: location
  properties: {
    createMode: recoverVault ? 'recover' : 'default'
    tenantId: tenant().tenantId
    sku: {
      family: 'A'
      name: 'standard'
    }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 90
    enablePurgeProtection: true
    publicNetworkAccess: 'Disabled'
    networkAcls: {
      defaultAction: 'Deny'
      bypass: 'AzureServices'
    }
  }
}

module signing 'secret.bicep' = if (!keepSecrets || !empty(signingSecret)) {
  name: 'secret-signing'
  params: {
    vaultName: vault.name
    name: 'signing-secret'
    value: signingSecret
  }
}

module smtp 'secret.bicep' = if (!keepSecrets || !empty(smtpPassword)) {
  name: 'secret-smtp'
  params: {
    vaultName: vault.name
    name: 'smtp-password'
    value: empty(smtpPassword) ? 'none' : smtpPassword
  }
}

module oidc 'secret.bicep' = if (!keepSecrets || !empty(oidcClientSecret)) {
  name: 'secret-oidc'
  params: {
    vaultName: vault.name
    name: 'oidc-client-secret'
    value: empty(oidcClientSecret) ? 'none' : oidcClientSecret
  }
}

module earthdata 'secret.bicep' = if (!keepSecrets || !empty(earthdataToken)) {
  name: 'secret-earthdata'
  params: {
    vaultName: vault.name
    name: 'earthdata-token'
    value: empty(earthdataToken) ? 'none' : earthdataToken
  }
}

resource reading 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, principalId, secretsUserRole)
  scope: vault
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUserRole)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource renewing 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operators)) {
  name: guid(vault.id, operators, secretsOfficerRole)
  scope: vault
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsOfficerRole)
    principalId: operators
    principalType: 'Group'
  }
}

resource log 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: vault
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'AuditEvent'
        enabled: true
      }
    ]
  }
}

module endpoint 'private-endpoint.bicep' = {
  name: 'endpoint-vault'
  params: {
    location: location
    name: '${name}-vault-pe'
    targetId: vault.id
    group: 'vault'
    zone: 'privatelink${replace(environment().suffixes.keyvaultDns, '.vault.', '.vaultcore.')}'
    subnetId: endpointSubnetId
    networkId: networkId
  }
}

output vaultName string = vault.name
output vaultUri string = vault.properties.vaultUri
